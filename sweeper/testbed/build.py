"""Building the test bed's models, once per machine: ``python -m sweeper.testbed.build [DIRECTORY]``.

The result::

    target/                      Llama checkpoint with its tokenizer
    draft_eagle3_010/ _035/ _100/  EAGLE-3 heads after 10, 35 and 100 % of their training
    draft_standalone/            a shallow Llama for the STANDALONE algorithm
    prompts.jsonl                held-out prompts: {"id": ..., "prompt": ...} per line
    manifest.json                recipe, versions, losses and timings; its presence says "finished"
"""

import argparse
import fcntl
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from sweeper.errors import SweeperError
from sweeper.testbed import train
from sweeper.testbed.corpus import Corpus, load_corpus, prompts
from sweeper.testbed.environment import cache_dir
from sweeper.testbed.llama import Llama
from sweeper.testbed.progress import Show, Work, shown
from sweeper.testbed.recipe import RECIPE, RECIPE_VERSION, Recipe
from sweeper.testbed.threads import Threads

_CHAT_TEMPLATE = (
    "{% for message in messages %}# {{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}# assistant: {% endif %}"
)
_DEPTH_OF_AGREEMENT = 5


class TestbedError(SweeperError):
    """The models cannot be put where they were asked for."""

    __test__ = False  # not a test, whatever pytest makes of the name


def build(directory: Path, show: Show | None = None, recipe: Recipe = RECIPE) -> dict[str, Any]:
    """Make everything in ``directory`` unless it is there, and return the manifest.

    Takes minutes.  Several processes may call this at once: one builds, the others wait.  The directory
    appears complete or not at all.  Raises TestbedError if it holds something else.
    """
    directory = directory.absolute()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_name(directory.name + ".lock")):
        manifest = read_manifest(directory, recipe)
        if manifest is not None:
            return manifest
        for abandoned in directory.parent.glob(f".{directory.name}-*"):  # by a builder that was killed
            shutil.rmtree(abandoned, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        try:
            manifest = _Builder(scratch, recipe, show or _quiet).run()
            scratch.chmod(0o755)  # mkdtemp makes it private
            if (directory / "manifest.json").exists():  # of another recipe or Python
                shutil.rmtree(directory)
            scratch.rename(directory)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return manifest


def read_manifest(directory: Path, recipe: Recipe) -> dict[str, Any] | None:
    """The manifest of a finished build of just this recipe and Python version; None if there is none.

    Raises TestbedError when the directory holds files that no build has made.
    """
    path = directory / "manifest.json"
    if path.exists():
        manifest: dict[str, Any] = json.loads(path.read_text())
        wanted = (RECIPE_VERSION, _python(), json.loads(json.dumps(asdict(recipe))))
        return (
            manifest
            if (manifest["recipe_version"], manifest["python"], manifest["recipe"]) == wanted
            else None
        )
    if directory.exists() and any(directory.iterdir()):
        raise TestbedError(
            f"{directory} is not empty and has no manifest.json; choose another directory or empty it"
        )
    return None


class _Builder:
    """One build into an empty directory."""

    def __init__(self, directory: Path, recipe: Recipe, show: Show) -> None:
        self.directory, self.recipe = directory, recipe
        self.work = Work(recipe, show)
        self.threads = Threads()
        self.seconds: dict[str, dict[str, float]] = {}

    def run(self) -> dict[str, Any]:
        with self.threads.kept():
            with self._phase("corpus"):
                corpus = load_corpus(self.recipe.vocab_size)
            tokenizer = _wrap(corpus.tokenizer, self.recipe)
            with self._phase("target"):
                target = train.train_target(corpus, self.recipe, self._report)
                target.save(self.directory / "target")
                tokenizer.save_pretrained(self.directory / "target")
            target.requires_grad_(False)
            with self._phase("eagle3"):
                eagle3 = self._eagle3(target, corpus)
            with self._phase("standalone"):
                standalone = train.train_standalone(target, corpus, self.recipe, self._report)
                standalone.save(self.directory / "draft_standalone")
                tokenizer.save_pretrained(self.directory / "draft_standalone")
            self._write_prompts(corpus)
            length = self.recipe.target.length
            quality = {
                "target_held_out_loss": train.held_out_loss(target, corpus, length),
                "eagle3_agreement": eagle3,
                "standalone_agreement": train.standalone_agreement(standalone, target, corpus, length),
            }
        manifest = {
            "recipe_version": RECIPE_VERSION,
            "python": _python(),
            "torch": torch.__version__,
            "recipe": asdict(self.recipe),
            "quality": quality,
            "seconds": self.seconds,
        }
        text = json.dumps(manifest, indent=1) + "\n"
        (self.directory / "manifest.json").write_text(text)
        self.work.finish()
        read_back: dict[str, Any] = json.loads(text)  # so that the first build returns what later ones do
        return read_back

    def _eagle3(self, target: Llama, corpus: Corpus) -> dict[str, list[float]]:
        """Train and save the heads; returns the agreement of each with the target, by draft step."""
        agreement = {}
        heads = train.train_eagle3(target, corpus, self.recipe, self._report)
        for percent, head in zip(self.recipe.eagle3_checkpoints, heads, strict=True):
            name = f"draft_eagle3_{percent:03d}"
            head.save(self.directory / name)
            length = self.recipe.eagle3.length
            agreement[name] = train.eagle3_agreement(head, target, corpus, length, _DEPTH_OF_AGREEMENT)
        return agreement

    def _write_prompts(self, corpus: Corpus) -> None:
        texts = prompts(corpus, self.recipe.prompts, self.recipe.prompt_tokens)
        lines = [json.dumps({"id": f"stdlib-{n:03d}", "prompt": text}) for n, text in enumerate(texts)]
        (self.directory / "prompts.jsonl").write_text("\n".join(lines) + "\n")

    def _report(self, phase: str, step: int, loss: float) -> None:
        self.threads.adapt()
        self.work.report(phase, step, loss)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Announce a phase and keep its wall and CPU time."""
        self.work.begin(name)
        wall, cpu = time.monotonic(), time.process_time()
        yield
        self.seconds[name] = {
            "wall": round(time.monotonic() - wall, 1),
            "cpu": round(time.process_time() - cpu, 1),
        }


def _wrap(tokenizer: Tokenizer, recipe: Recipe) -> PreTrainedTokenizerFast:
    """The tokenizer as the server loads it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="<s>",
        pad_token="<s>",
        model_max_length=recipe.max_position_embeddings,
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; it goes with the process, so a killed build blocks nobody."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def _quiet(share: float, seconds_left: float | None, text: str) -> None:
    pass


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Build the models of the CPU test bed, once.")
    parser.add_argument("directory", nargs="?", type=Path, default=cache_dir(), help="default: %(default)s")
    directory = parser.parse_args().directory
    try:
        with shown() as show:
            manifest = build(directory, show)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return 2
    loss = manifest["quality"]["target_held_out_loss"]
    print(f"{directory}: target's held-out loss {loss:.2f} nats per token")
    return 0


if __name__ == "__main__":
    sys.exit(main())
