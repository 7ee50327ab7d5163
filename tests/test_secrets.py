"""Secrets are known by their names, and no text that leaves a server's node holds their values."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
import pytest

from sweeper.records import FailureClass, TrialResult, TrialState, trial_record_json
from sweeper.secrets import Redactor, is_secret_name, literal_secret, secrets_of
from sweeper.server.log_text import HEAD, TAIL, Cleaner, last_words, read_log
from sweeper.server.prepare import prepare_engine
from sweeper.space import enumerate_space
from sweeper.storage.stored_trial import attributes
from sweeper.study_file.reading import load_study_file
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.run import run_trial
from sweeper.workload.prompts import plan_prompts, read_conversations
from tests.command_line import sweeper
from tests.conftest import WriteStudy

TOKEN = "tok&en with/odd'\"chars-1234"
CLOUD = "wJalrXUtnFEMI/K7MDENG"
PROXY = "proxypass99"
NAMES = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", TOKEN)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CLOUD)
    monkeypatch.setenv("SWEEPER_TEST_PROXY", f"http://me:{PROXY}@proxy:1")


SPELLINGS = [
    form
    for secret in (TOKEN, CLOUD, PROXY)
    for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1])
]


def holds_secret(text: str) -> list[str]:
    return [form for form in SPELLINGS if form in text]


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "PGPASSWORD",
        "MYSQL_PWD",
        "db-password",
        "TOKEN_OF_TEST",
        "SOME_CREDENTIALS",
        "SSH_PASSPHRASE",
        "OPENAI_APIKEY",
        "GITHUB_PAT",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "PWD",
        "OLDPWD",
        "HF_TOKEN_PATH",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE",
        "NCCL_IB_PKEY",
        "AWS_REGION",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "RAY_AUTH_MODE",
        "SSH_AUTH_SOCK",
        "MONKEY",
        "HF_HOME",
        "PATH",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_replaced_in_every_spelling() -> None:
    redact = Redactor(
        secrets_of({"HF_TOKEN": TOKEN, "URL": f"postgresql://me:{PROXY}@db", "OTHER": "visible"})
    )
    assert [
        redact(f"a {form} b") for form in SPELLINGS if CLOUD not in form and form != quote(CLOUD, safe="")
    ] == ["a *** b"] * 8
    assert redact("visible") == "visible"


def test_a_secret_that_holds_another_leaves_no_rest() -> None:
    assert Redactor(["abcdef", "abcdefghij"])("abcdefghij abcdef") == "*** ***"


def test_every_line_of_a_private_key_is_replaced() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nshort\n"
    assert "MIIE" not in Redactor([key])("line: MIIEvQIBADANBgkqhkiG")


def test_short_values_are_left_alone() -> None:
    assert Redactor(["", "on", "12345"])("on 12345") == "on 12345"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:unknown@db/x",
        "Authorization: Bearer abcdefghijklmnop",
        f"hf_{'a' * 34}",
        f"AKIA{'A' * 16}",
    ],
)
def test_what_looks_like_a_secret_is_replaced_unknown_as_it_is(text: str) -> None:
    assert "***" in Redactor([])(text)


@pytest.mark.parametrize(
    "text", ["tcp://127.0.0.1:30000", "http://me@host/x", "2026-01-01 10:00:00 a@b", "basic words: x@y"]
)
def test_what_does_not_is_left_alone(text: str) -> None:
    assert Redactor([])(text) == text
    assert literal_secret(text) is None


def test_cleaning_twice_changes_nothing() -> None:
    clean = Cleaner({"HF_TOKEN": TOKEN}, "key-of-the-launch")
    once = clean(f"\x1b[31m{TOKEN}\x1b[0m\r\nkey-of-the-launch\x1b]0;x\x07\tü\n")
    assert once == "***\n***\\x1b]0;x\\x07\tü\n"
    assert clean(once) == once


def test_an_endless_log_is_read_at_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + b"x" * (HEAD + TAIL) + b"\nlast\n")
    text = read_log(path)
    assert text.startswith("first")
    assert text.endswith("last\n")
    assert "12 bytes are left out here" in text
    assert read_log(tmp_path / "none") == ""


def test_what_a_helper_process_complains_with_is_cleaned() -> None:
    errors = f"Traceback\n\x1b[31mOSError: {TOKEN} is no token\n\n"
    assert last_words(errors, {"HF_TOKEN": TOKEN}) == "OSError: *** is no token"
    assert last_words(" \n", {}) == "no output"


def trial(write_study: WriteStudy, tmp_path: Path, fault: str) -> TrialResult:
    env = {"FAKE_FAULTS": json.dumps({"draft_a": fault}), "HF_TOKEN": "${TOKEN_OF_TEST}"}
    study = load_study_file(write_study(engine={"env": env}))
    plan = TrialPlan(study, prepare_engine(study), plan_prompts(study, read_conversations(study)))
    candidate = enumerate_space(study.space).candidates[1]
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "server.log"
    return run_trial(plan, TrialOrder(candidate, study.workload.loads), log, Watch())


@pytest.mark.parametrize(("fault", "state"), [("dies_telling", "FAILED"), ("tells_secrets", "COMPLETE")])
def test_a_server_that_tells_its_secrets(
    write_study: WriteStudy, tmp_path: Path, environment: None, fault: str, state: str
) -> None:
    result = trial(write_study, tmp_path, fault)
    record = result.record
    assert record.state is TrialState(state)
    stored = [
        trial_record_json.dump_json(record).decode(),
        json.dumps(attributes(record, {})),
        result.log,
        (tmp_path / "log" / "server.log").read_text(),
    ]
    for text in stored:
        assert not holds_secret(text)
        assert "\x1b" not in text.replace("\\u001b", "\x1b")
    assert "overriding HF_TOKEN=***" in result.log
    assert "'--api-key', '***'" in result.log
    assert any("overriding HF_TOKEN=***" in line for line in record.warnings)
    assert record.command[record.command.index("--api-key") + 1] == "***"
    if record.failure:
        assert record.failure.kind is FailureClass.DRAFT_INCOMPATIBLE
        assert "token ***" in record.failure.message


@pytest.mark.xdist_group("secrets")
def test_no_file_of_a_run_holds_a_secret(
    write_study: WriteStudy, tmp_path: Path, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole sweep: Optuna's database, logs, tables, exports, the baseline cache, and what the terminal showed."""
    monkeypatch.setenv("PGPASSWORD", "database-password")  # the driver has it, the study does not name it
    faults = {"": "tells_secrets", "draft_a": "tells_secrets", "draft_b": "dies_telling"}
    env = {"FAKE_FAULTS": json.dumps(faults), "HF_TOKEN": "${TOKEN_OF_TEST}"}
    path = write_study(engine={"env": env}, resources={"max_servers": 1})
    done = [sweeper("check", str(path)), sweeper("run", str(path))]
    run = tmp_path / "runs" / "small"
    done += [sweeper("report", str(run), *words) for words in ([], ["--json"])] + [
        sweeper("export", str(run), "--allow-unconfirmed")
    ]
    for command in done:
        assert command.returncode == 0, command.stderr
        assert not holds_secret(command.stdout + command.stderr)
        assert "\x1b" not in command.stdout + command.stderr
    assert "[bold red]not markup[/]" in (run / "logs" / "trial-0000.log").read_text()
    seen = 0
    for file in (
        file for folder in ("runs", "baselines") for file in (tmp_path / folder).rglob("*") if file.is_file()
    ):
        content = file.read_bytes()
        seen += 1
        assert b"database-password" not in content
        assert not [form for form in SPELLINGS if form.encode() in content], file
    assert seen > 8
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{run}/study.db")
    told: Any = [study.user_attrs, *(t.user_attrs for t in study.trials)]
    assert not holds_secret(json.dumps(told))
    assert "HF_TOKEN: ${TOKEN_OF_TEST}" in (run / "study.yaml").read_text()
    assert os.environ["TOKEN_OF_TEST"] == TOKEN
