"""The Llama, the optimizer, the corpus and a build of a handful of steps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sweeper.drafts.eagle3 import Eagle3Head
from sweeper.drafts.layers import LayerShape
from sweeper.testbed import build as build_module
from sweeper.testbed.build import TestbedError, build
from sweeper.testbed.corpus import Corpus, Document, documents, load_corpus, prompts
from sweeper.testbed.llama import Llama, LlamaConfig
from sweeper.testbed.optimizer import orthogonalise, schedule
from sweeper.testbed.recipe import Recipe, Training

FEW = Training(steps=3, batch=2, length=16, matrix_rate=0.01, other_rate=1e-3)
SMALL = Recipe(
    FEW, replace(FEW, steps=20), FEW, vocab_size=512, hidden_size=32, intermediate_size=48, layers=8, heads=2,
    head_dim=16, prompts=20, prompt_tokens=12,
)  # fmt: skip


def small_llama(layers: int) -> Llama:
    torch.manual_seed(0)
    return Llama(LlamaConfig(LayerShape(32, 48, 2, 2, 16), 50, layers, 64)).requires_grad_(False)


@pytest.fixture(scope="module")
def texts() -> list[Document]:
    return documents()


@pytest.fixture(scope="module")
def corpus(texts: list[Document]) -> Corpus:
    """A tokenizer of all files would take half a minute: every tenth one, and those that are held out."""
    few = [text for i, text in enumerate(texts) if text.held_out or i % 10 == 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeper.testbed.corpus.documents", lambda: few)
        return load_corpus(512)


def test_the_model_computes_what_transformers_computes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = small_llama(3)
    model.save(tmp_path)
    other = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, 50, (2, 9))
    torch.testing.assert_close(model(ids).logits, other(ids).logits.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(Llama.load(tmp_path)(ids).logits, model(ids).logits)


def test_growing_doubles_the_depth_and_changes_nothing() -> None:
    model, ids = small_llama(3), torch.randint(0, 50, (2, 9))
    before = model(ids).logits
    model.grow()
    assert len(model.layers) == model.config.num_hidden_layers == 6
    torch.testing.assert_close(model(ids).logits, before)


@pytest.mark.parametrize("shape", [(2, 24, 24), (1, 16, 48), (1, 48, 16)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    # The smallest values of a square random matrix may not have arrived; the rest must have.
    assert values.max() < 1.4
    assert values.median() > 0.6


def test_the_learning_rate_rises_holds_and_falls() -> None:
    assert schedule(0, 100) == pytest.approx(0.05)
    assert schedule(30, 100) == 1.0
    assert schedule(70, 100) == pytest.approx(0.5)
    assert schedule(99, 100) == pytest.approx(0.03)


def test_the_split_is_disjoint_and_both_sides_have_text(texts: list[Document]) -> None:
    train, held = ({t.name for t in texts if t.held_out is side} for side in (False, True))
    assert not train & held
    assert len(train) > 300
    assert len(held) >= 10


def test_prompts_are_distinct_held_out_and_encode_to_the_asked_length(
    corpus: Corpus, texts: list[Document]
) -> None:
    found = prompts(corpus, 64, 32)
    assert len(set(found)) == 64
    assert {len(corpus.tokenizer.encode(text).ids) for text in found} == {32}
    held_out = "\n".join(text.text for text in texts if text.held_out)
    assert all(text in held_out for text in found)


def test_too_many_prompts_are_refused(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="not 1000000"):
        prompts(corpus, 1_000_000, 32)


def test_a_build_has_every_file_and_happens_once(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(build_module, "load_corpus", lambda vocab_size: corpus)  # made once for all tests
    directory = tmp_path / "bed"
    shares: list[float] = []
    manifest = build(directory, lambda share, seconds_left, text: shares.append(share), SMALL)

    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert json.loads((directory / "manifest.json").read_text()) == manifest
    assert {path.name for path in directory.iterdir()} == {
        "target", "draft_eagle3_010", "draft_eagle3_035", "draft_eagle3_100", "draft_standalone",
        "prompts.jsonl", "manifest.json",
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["bed"]  # no scratch left
    assert len(Llama.load(directory / "target").layers) == 8
    assert len(Llama.load(directory / "draft_standalone").layers) == 2
    heads = [Eagle3Head.load(directory / f"draft_eagle3_{name}") for name in ("010", "035", "100")]
    assert not torch.equal(heads[0].fc.weight, heads[2].fc.weight)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "target")
    rows = [json.loads(line) for line in (directory / "prompts.jsonl").read_text().splitlines()]
    assert len({row["id"] for row in rows}) == 20
    assert {len(tokenizer.encode(row["prompt"])) for row in rows} == {12}
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "# user: x\n"

    monkeypatch.setattr(build_module, "_Builder", None)  # a second build would fail
    assert build(directory, recipe=SMALL) == manifest


def test_somebody_elses_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TestbedError, match=r"no manifest\.json"):
        build(tmp_path, recipe=SMALL)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build_module, "load_corpus", fail)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "bed", recipe=SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["bed.lock"]
