"""Fixtures: studies that need only a workload, and a tokenizer of single bytes with the chat template one asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeper.config import StudyConfig
from sweeper.workload import chat, render_chat

MakeStudy = Callable[..., StudyConfig]
MakeTokenizer = Callable[..., Any]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip('\n') }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
STRIPPING = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture
def make_study(tmp_path: Path) -> MakeStudy:
    """A study whose workload and measurement are given; the files of its engine need not exist."""

    def make(prompts: str | Path, engine: dict[str, Any] | None = None, **sections: Any) -> StudyConfig:
        workload = {
            "prompts": str(prompts),
            "concurrency": [1, 4],
            "max_new_tokens": 16,
            **sections.pop("workload", {}),
        }
        measurement = {"min_requests": 8, "rounds": 2, "max_requests": 16, **sections.pop("measurement", {})}
        return StudyConfig.model_validate(
            {
                "study": "small",
                "engine": {"model": str(tmp_path / "target"), "device": "cpu", **(engine or {})},
                "space": {"grids": [{"algorithm": "NGRAM", "num_draft_tokens": 4}]},
                "workload": workload,
                "measurement": measurement,
                **sections,
            }
        )

    return make


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    def write(*rows: object, name: str = "prompts.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return path

    return write


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renders in this process, with Transformers' loader in place of SGLang's: imports take ten seconds a time."""
    transformers = pytest.importorskip("transformers")

    def load(asked: dict[str, Any]) -> tuple[Any, str]:
        return transformers.AutoTokenizer.from_pretrained(asked["model"]), "SGLang"

    monkeypatch.setattr(render_chat, "load_tokenizer", load)
    monkeypatch.setattr(chat, "_run", lambda study, given: render_chat.answer_or_error(json.loads(given)))


@pytest.fixture
def make_tokenizer(tmp_path: Path) -> MakeTokenizer:
    """One token per byte; ``<s>`` is put before every text where ``adds_bos``. Written to the study's target too."""
    pytest.importorskip("transformers")

    def make(chat_template: str | None = CHATML, adds_bos: bool = False) -> Any:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
        from transformers import PreTrainedTokenizerFast

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        specials = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
        tokenizer.add_special_tokens(specials)
        if adds_bos:
            bos = tokenizer.token_to_id("<s>")
            tokenizer.post_processor = processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", bos)]
            )
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            bos_token="<s>",
            eos_token="</s>",
            additional_special_tokens=specials[2:],
            chat_template=chat_template,
        )
        directory = tmp_path / "target"
        fast.save_pretrained(directory)
        (directory / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
        return fast

    return make
