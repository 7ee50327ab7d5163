"""Text for the tiny models: the source of this Python's own standard library.

It is on every machine, needs no network and is varied enough to tell good drafts from weak ones.  It
differs between Python versions, and so do tokenizer and models.
"""

import hashlib
import random
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

# Tests, tables and vendored code: little variety for their size.
_LEFT_OUT = {
    "site-packages", "test", "tests", "idle_test", "encodings", "pydoc_data", "lib2to3", "__pycache__",
    "turtledemo", "ensurepip", "msilib",
}  # fmt: skip
_SIZES = range(1_000, 300_000)  # bytes of a file
_HELD_OUT_SHARE = 20  # one file in this many
_START = "<s>"  # token 0, in front of every document

# One pre-token is a line break with the indentation after it, a word with its leading space, one or two
# digits, a run of spaces, or a few punctuation marks.
_PIECES = r"\n[ \n]*| ?[A-Za-z_]+|[0-9]{1,2}| {2,}| ?[^\sA-Za-z0-9_]{1,4}|\s"


@dataclass(frozen=True)
class Document:
    """One source file; ``name`` is its path inside the standard library."""

    name: str
    text: str

    @property
    def held_out(self) -> bool:
        """Whether it is kept away from training; a hash, so that it never depends on the other files."""
        return int(hashlib.sha1(self.name.encode()).hexdigest(), 16) % _HELD_OUT_SHARE == 0


def documents() -> list[Document]:
    """All usable files of the standard library, in the order of their names."""
    base = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in sorted(base.rglob("*.py")):
        name = path.relative_to(base)
        generated = name.name.startswith("_sysconfigdata") or name.as_posix() == "html/entities.py"
        if generated or _LEFT_OUT & set(name.parts) or path.stat().st_size not in _SIZES:
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if sum(not character.isascii() for character in text) <= 50:
            found.append(Document(name.as_posix(), text.replace("\t", "    ")))
    return found


def train_tokenizer(texts: Sequence[Document], vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer of the documents that are not held out."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[_START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=24,
        show_progress=False,
    )
    tokenizer.train_from_iterator((text.text for text in texts if not text.held_out), trainer)
    return tokenizer


@dataclass(frozen=True)
class Corpus:
    """Token ids: ``train`` [tokens] in one piece, ``held_out`` one tensor per document."""

    tokenizer: Tokenizer
    train: Tensor
    held_out: tuple[Tensor, ...]

    def windows(self, length: int, seed: int) -> Tensor:
        """The training tokens in shuffled windows [N, ``length``] that do not overlap."""
        count = len(self.train) // length
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        return self.train[: count * length].view(count, length)[order]

    def held_out_windows(self, count: int, length: int) -> Tensor:
        """The first tokens of the held-out documents, as windows [``count``, ``length``]."""
        return torch.cat(self.held_out)[: count * length].view(count, length)


def load_corpus(vocab_size: int) -> Corpus:
    """Read the files, train the tokenizer and encode everything; takes a few seconds."""
    texts = documents()
    tokenizer = train_tokenizer(texts, vocab_size)
    start = tokenizer.token_to_id(_START)
    assert start is not None
    train: list[int] = []
    held_out = []
    for text, encoding in zip(texts, tokenizer.encode_batch([text.text for text in texts]), strict=True):
        ids = [start, *encoding.ids]
        if text.held_out:
            held_out.append(torch.tensor(ids))
        else:
            train += ids
    return Corpus(tokenizer, torch.tensor(train), tuple(held_out))


def prompts(corpus: Corpus, count: int, length: int, seed: int = 0) -> list[str]:
    """``count`` distinct held-out texts that encode to ``length`` tokens each.

    They are taken from places that do not overlap.  A text cut out of a file may encode differently from
    the file; such places are passed over.  Raises ValueError if the held-out documents are too short.
    """
    places = [
        ids[start : start + length].tolist()
        for ids in corpus.held_out
        for start in range(1, len(ids) - length, length)
    ]
    random.Random(seed).shuffle(places)
    chosen: dict[str, None] = {}  # a dict keeps the order
    for ids in places:
        text = corpus.tokenizer.decode(ids)
        if corpus.tokenizer.encode(text).ids == ids:
            chosen[text] = None
        if len(chosen) == count:
            return list(chosen)
    raise ValueError(f"the held-out files give {len(chosen)} prompts of {length} tokens, not {count}")
