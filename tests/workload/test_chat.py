"""Conversations go through the target's own tokenizer, in the engine's interpreter; plain prompts need neither."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeper.config import StudyConfig
from sweeper.workload import chat
from sweeper.workload.chat import needs_tokenizer, raw_warning, render
from sweeper.workload.conversation import Conversation, Conversations, Message, Prompt, WorkloadError
from sweeper.workload.tokenizer_files import context_tokens, has_chat_template, identity
from tests.conftest import FAKE_ENGINE
from tests.workload.conftest import CHATML, THINKING, MakeStudy, MakeTokenizer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def asked(make_study: MakeStudy) -> Callable[..., StudyConfig]:
    """A study in whose interpreter SGLang's own tokenizer loader is not there, which saves importing SGLang."""

    def make(engine: dict[str, Any] | None = None, **workload: Any) -> StudyConfig:
        return make_study(
            "p.jsonl", engine={"env": {"PYTHONPATH": str(FAKE_ENGINE)}, **(engine or {})}, workload=workload
        )

    return make


Asked = Callable[..., StudyConfig]


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the tokenizer was asked")

    monkeypatch.setattr(chat, "_run", refuse)


def plain(text: str = "Hi", name: str = "1") -> Conversation:
    return Conversation(name, ((Message("user", text),),), True, f"p.jsonl:{name}")


def talk(*questions: str, name: str = "1") -> Conversation:
    return Conversation(name, tuple((Message("user", text),) for text in questions), False, f"p.jsonl:{name}")


def those(*items: Conversation) -> Conversations:
    return Conversations("p.jsonl", items)


@pytest.mark.usefixtures("no_process")
def test_plain_prompts_are_sent_as_they_are(asked: Asked) -> None:
    assert not needs_tokenizer(asked(), those(plain()))
    found = render(asked(), those(plain()))
    assert found.prompts == (Prompt("1", "Hi"),)
    assert found.notes == ("plain prompts are sent raw, without a chat template",)


@pytest.mark.parametrize(
    ("workload", "item", "needed"),
    [
        ({}, plain(), False),
        ({}, talk("Hi"), True),
        ({"chat_template": True}, plain(), True),
        ({"chat_template": False}, talk("Hi"), False),
        ({"input_lengths": [[1, 9]]}, plain(), True),
    ],
)
def test_the_tokenizer_is_needed_to_render_or_to_count(
    asked: Asked, workload: dict[str, Any], item: Conversation, needed: bool
) -> None:
    assert needs_tokenizer(asked(**workload), those(item)) == needed


def test_conversations_are_rendered_and_counted(asked: Asked, make_tokenizer: MakeTokenizer) -> None:
    make_tokenizer(THINKING)
    study = asked(chat_template_kwargs={"enable_thinking": False})
    found = render(study, those(talk("A?"), talk("A?", "B?", name="2"), plain("raw", "3")))
    one, two, three = found.prompts
    assert found.notes[-1] == "tokens as Transformers counts them: SGLang's own loader cannot be imported"
    assert one.text == "<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert (one.id, one.input_tokens, one.follow_ups) == ("1", 40, ())
    assert two.turn(["a"]).startswith("<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n")
    assert two.requests == 2
    assert three == Prompt("3", "raw", (), 3)


@pytest.mark.usefixtures("in_process")
def test_the_answer_is_kept_for_the_user_alone_until_the_tokenizer_changes(
    asked: Asked, make_tokenizer: MakeTokenizer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tokenizer(CHATML)
    first = render(asked(), those(talk("A?")))
    (file,) = (cache / "sweeper" / "rendered").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setattr(chat, "_run", lambda *_: pytest.fail("asked again"))
    assert render(asked(), those(talk("A?"))) == first
    monkeypatch.setattr(chat, "_run", lambda *_: {"error": "asked again", "index": 0})
    for study, item in [(asked(), talk("B?")), (asked(chat_template_kwargs={"x": 1}), talk("A?"))]:
        with pytest.raises(WorkloadError, match="asked again"):
            render(study, those(item))
    make_tokenizer("{{ messages[0].content }} changed")
    with pytest.raises(WorkloadError, match="p.jsonl:1: asked again"):
        render(asked(), those(talk("A?")))


@pytest.mark.usefixtures("in_process")
def test_a_target_without_a_template_is_an_error_that_says_what_to_do(
    asked: Asked, make_tokenizer: MakeTokenizer, cache: Path
) -> None:
    make_tokenizer(None)
    said = (
        "engine.model: .*/target: the target has no chat template; rendering is asked for by p.jsonl:2: set "
        "engine.extra_args.chat-template to a .jinja file, or give plain prompts"
    )
    with pytest.raises(WorkloadError, match=said):
        render(asked(), those(plain(), talk("A?", name="2")))
    assert not (cache / "sweeper" / "rendered").exists()


@pytest.mark.usefixtures("in_process")
def test_a_refused_conversation_is_named_by_its_line(asked: Asked, make_tokenizer: MakeTokenizer) -> None:
    make_tokenizer(
        "{% if messages[0].content == 'B?' %}{{ raise_exception('no B') }}{% endif %}{{ messages[0].content }}"
    )
    with pytest.raises(WorkloadError, match="^p.jsonl:2: the chat template refuses it: .*no B"):
        render(asked(), those(talk("A?"), talk("B?", name="2")))


@pytest.mark.usefixtures("in_process")
def test_a_missing_tokenizer_is_told(asked: Asked) -> None:
    with pytest.raises(
        WorkloadError, match="engine.model: .*/target: its tokenizer cannot be loaded or used: "
    ):
        render(asked(), those(talk("A?")))


@pytest.mark.parametrize("python", ["/nonexistent/python", "/bin/false"])
def test_an_interpreter_that_cannot_render_is_told(asked: Asked, python: str) -> None:
    with pytest.raises(WorkloadError, match=f"engine.python: {python} cannot render the prompts: "):
        render(asked(engine={"python": python}), those(talk("A?")))


@pytest.mark.usefixtures("in_process")
def test_the_servers_own_template_file_is_used(
    asked: Asked, make_tokenizer: MakeTokenizer, tmp_path: Path
) -> None:
    make_tokenizer(None)
    file = tmp_path / "mine.jinja"
    file.write_text("({{ messages[0].content }})")
    study = asked(engine={"extra_args": {"chat-template": str(file)}})
    assert render(study, those(talk("A?"))).prompts[0].text == "(A?)"


@pytest.mark.usefixtures("in_process")
def test_a_processors_template_is_used(asked: Asked, make_tokenizer: MakeTokenizer, tmp_path: Path) -> None:
    make_tokenizer(None)
    (tmp_path / "target" / "chat_template.json").write_text(
        '{"chat_template": "<{{ messages[0].content }}>"}'
    )
    assert render(asked(), those(talk("A?"))).prompts[0].text == "<A?>"


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    ("given", "said"),
    [("/none.jinja", "cannot be read"), ("llama-2", "which only its chat endpoint can render")],
)
def test_a_template_that_cannot_be_read_is_told(asked: Asked, given: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=f"engine.extra_args.chat-template: {given} .*{said}"):
        render(asked(engine={"extra_args": {"chat-template": given}}), those(talk("A?")))


@pytest.mark.usefixtures("no_process")
def test_roles_and_turns_need_a_template(asked: Asked) -> None:
    study = asked(chat_template=False)
    assert render(study, those(talk("A?"))).prompts == (Prompt("1", "A?"),)
    system = Conversation("1", ((Message("system", "S"), Message("user", "A?")),), False, "p.jsonl:1")
    for item in (talk("A?", "B?"), system):
        with pytest.raises(
            WorkloadError, match="p.jsonl:1: workload.chat_template is false, but roles and turns"
        ):
            render(study, those(item))


@pytest.mark.usefixtures("in_process")
def test_prompts_that_exceed_the_targets_context_are_left_out(
    asked: Asked, make_tokenizer: MakeTokenizer
) -> None:
    make_tokenizer(CHATML)
    study = asked(engine={"extra_args": {"context-length": 60}})
    found = render(study, those(talk("A?"), talk("A" * 40, name="2"), talk("A?", "B?", name="3")))
    assert [prompt.id for prompt in found.prompts] == ["1"]
    assert found.notes[-1] == (
        "2 prompts are left out: with workload.max_new_tokens they exceed the target's context of 60 tokens "
        "(the longest: p.jsonl:3, up to 76 tokens)"
    )


@pytest.mark.usefixtures("in_process")
def test_the_templates_arguments_are_in_the_notes(asked: Asked, make_tokenizer: MakeTokenizer) -> None:
    make_tokenizer(THINKING)
    notes = render(asked(chat_template_kwargs={"enable_thinking": False}), those(talk("A?"))).notes
    assert notes == ("chat template of the target with enable_thinking=False",)
    notes = render(asked(chat_template_kwargs={"enable_thinking": False}), those(plain())).notes
    assert (
        notes[0]
        == "workload.chat_template_kwargs (enable_thinking=False) has no effect: no prompt is rendered"
    )


@pytest.mark.usefixtures("in_process")
def test_recorded_replies_are_told(asked: Asked, make_tokenizer: MakeTokenizer) -> None:
    make_tokenizer(CHATML)
    turn = (Message("user", "A?"), Message("assistant", "a"), Message("user", "B?"))
    notes = render(asked(), those(Conversation("1", (turn,), False, "p.jsonl:1"))).notes
    assert notes[1] == "1 prompts are requests with the replies of their time as history"


def test_raw_prompts_for_a_chat_model_are_warned_about(asked: Asked, tmp_path: Path) -> None:
    assert raw_warning(asked(), those(plain())) is None  # nothing is known of the target here
    (tmp_path / "target").mkdir()
    config = tmp_path / "target" / "tokenizer_config.json"
    config.write_text("{}")
    assert has_chat_template(asked()) is False
    assert raw_warning(asked(), those(plain())) is None
    special = {"content": "<|im_start|>", "special": True}
    config.write_text(json.dumps({"chat_template": "x", "added_tokens_decoder": {"1": special}}))
    warning = raw_warning(asked(), those(plain()))
    assert warning
    assert "set workload.chat_template: true to render them, or false to say that raw is meant" in warning
    assert warning in render(asked(), those(plain())).notes
    assert raw_warning(asked(chat_template=False), those(plain())) is None
    assert raw_warning(asked(), those(talk("A?"))) is None
    assert raw_warning(asked(), those(plain("<|im_start|>user\nHi"))) is None


def test_a_template_in_a_file_of_its_own_counts(asked: Asked, tmp_path: Path) -> None:
    assert has_chat_template(asked()) is None
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "chat_template.jinja").write_text("x")
    assert has_chat_template(asked())


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({}, None),
        ({"max_position_embeddings": 4096}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 4.0}}, 16384),
        ({"text_config": {"max_position_embeddings": 8192}, "rope_scaling": None}, 8192),
    ],
)
def test_the_context_is_the_configs(
    asked: Asked, tmp_path: Path, config: dict[str, Any], tokens: int | None
) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(config))
    assert context_tokens(asked()) == tokens
    assert context_tokens(asked(engine={"extra_args": {"context-length": 100}})) == 100


def test_a_hub_id_is_looked_up_in_the_local_cache_only(asked: Asked) -> None:
    study = asked(engine={"model": "nobody/nothing"})
    assert identity(study) == {}
    assert has_chat_template(study) is None
    assert context_tokens(study) is None
