"""Renders conversations through a tokenizer's chat template and counts tokens: ``python render_chat.py < JSON``.

Runs in the engine's interpreter, so it imports nothing of sweeper. Standard input is one object: ``model``,
``revision``, ``trust_remote_code``, ``template`` (a template's text, null for the tokenizer's own), ``kwargs``, and
``conversations``, each ``{"turns": [[{"role", "content"}, ...], ...], "render": bool}``. Standard output is one object
with ``prompts`` in the same order, or ``{"error": text, "index": the conversation's or null}``.

A server's /generate takes text, so a conversation becomes text pieces: the first request, and for each later one what
stands between the reply and the next generation. Both come from rendering the history with marks instead of replies.
"""

import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

LOADERS = ("sglang.srt.utils.hf_transformers_utils", "sglang.srt.hf_transformers_utils")
CONTINUED = "so that it cannot be continued as text; give each turn as a prompt of its own"
MARK, THOUGHT, THOUGHT_END = "SWEEPERREPLY", "SWEEPERTHOUGHT", "</think>"
CHECKED, BATCH = 4, 256

Messages = list[dict[str, Any]]


class RenderError(Exception):
    """The message goes to the user; ``index`` is that of the conversation at fault."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


def load_tokenizer(asked: dict[str, Any]) -> tuple[Any, str]:
    """The tokenizer as the server loads it, and by what; SGLang mends what Transformers drops (added BOS tokens)."""
    model, revision = asked["model"], asked["revision"]
    trust = {"trust_remote_code": asked["trust_remote_code"]}
    for module in LOADERS:
        try:
            load = importlib.import_module(module).get_tokenizer
        except Exception:  # without its processors SGLang may not even be importable
            continue
        return load(model, tokenizer_revision=revision, **trust), "SGLang"
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, revision=revision, **trust), "Transformers"


class Template:
    """One tokenizer's chat template with fixed arguments."""

    def __init__(self, tokenizer: Any, text: str | None, kwargs: dict[str, Any]) -> None:
        self._tokenizer, self._text, self._kwargs = tokenizer, text, kwargs
        self._parts = False
        self.rules: dict[str, Any] = {}
        if not (text or getattr(tokenizer, "chat_template", None)):
            raise RenderError("the target has no chat template")
        self._parts = not self._shows_a_text()
        if self._parts and not self._shows_a_text():
            raise RenderError("the target's chat template does not show what a user says: " + self._problem)

    def _shows_a_text(self) -> bool:
        """Some templates want a message's content as a text, others as a list of parts and drop a text unseen."""
        mark = marker(0)
        self._problem = "a user's text is not in what it returns"
        try:
            return mark in self([{"role": "user", "content": mark}])
        except Exception as error:
            self._problem = said(error)
            return False

    def _apply(self, messages: Messages, tokenize: bool) -> Any:
        if self._parts:
            messages = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in messages]
        own = {"chat_template": self._text} if self._text else {}
        return self._tokenizer.apply_chat_template(
            messages, tokenize=tokenize, add_generation_prompt=True, return_dict=False, **own, **self._kwargs
        )

    def __call__(self, messages: Messages) -> str:
        return str(self._apply(messages, False))

    def ids(self, messages: Messages) -> list[int]:
        """What a chat endpoint sends to the model."""
        return list(self._apply(messages, True))

    def unread(self) -> list[str]:
        """A note on each argument that the template's text does not mention: misspelt, or of another model."""
        text = str(self._text or self._tokenizer.chat_template)  # some tokenizers have several, by name
        names = [name for name in self._kwargs if not re.search(rf"\b{re.escape(name)}\b", text)]
        return [
            f"workload.chat_template_kwargs.{n}: the target's chat template never reads it" for n in names
        ]


def said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def marker(number: int) -> str:
    """Stands for a reply that is not there yet."""
    return f"{MARK}{number:04d}X"


def segments(render: Callable[[Messages], str], turns: list[Messages]) -> tuple[str, list[str], str]:
    """The first request, the texts between each reply and the next generation, and the opening's ``tail``.

    A template may open a reply with more than stays in the history (Qwen3 without thinking: an empty thought); that is
    the tail, which must be the same after each turn. A template that rewrites earlier turns is refused.
    """
    messages = list(turns[0])
    first = opening = render(messages)
    history, follow_ups = list[str](), list[str]()
    tail = None
    for number, turn in enumerate(turns[1:], start=1):
        messages = [*messages, {"role": "assistant", "content": marker(number)}, *turn]
        pieces = _between_marks(render(messages), number)
        stays = pieces[number - 1]
        if pieces[: number - 1] != history or not opening.startswith(stays):
            raise RenderError(f"the target's chat template rewrites a conversation that goes on, {CONTINUED}")
        if tail not in (None, opening[len(stays) :]):
            raise RenderError(f"the target's chat template opens replies in different ways, {CONTINUED}")
        tail = opening[len(stays) :]
        history.append(stays)
        follow_ups.append(pieces[number])
        opening = pieces[number]
    return first, follow_ups, tail or ""


def _between_marks(text: str, count: int) -> list[str]:
    pieces = []
    for number in range(1, count + 1):
        if text.count(marker(number)) != 1:
            raise RenderError(
                f"the target's chat template drops or repeats a conversation's replies, {CONTINUED}"
            )
        before, text = text.split(marker(number))
        pieces.append(before)
    return [*pieces, text]


def reply_rules(render: Callable[[Messages], str], turns: list[Messages]) -> dict[str, Any]:
    """What the template does to any reply in the history: drop its thought, strip its white space."""
    mark = marker(1)

    def shown(content: str) -> str:
        return render([*turns[0], {"role": "assistant", "content": content}, *turns[1]])

    plain = shown(mark).partition(mark)
    thought = shown(f"{THOUGHT}{THOUGHT_END}\n\n{mark}")
    padded = shown(f" \n{mark} \n").partition(mark)
    drops = mark in thought and THOUGHT not in thought
    return {"through": THOUGHT_END if drops else "", "strips": padded == plain}


def token_lists(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Token ids as a server's /generate makes them, special tokens added by the tokenizer included."""
    if not getattr(tokenizer, "is_fast", False):
        return [list(tokenizer.encode(text)) for text in texts]
    batches = (texts[begin : begin + BATCH] for begin in range(0, len(texts), BATCH))
    return [ids for batch in batches for ids in tokenizer(batch)["input_ids"]]


def added_bos(tokenizer: Any) -> str:
    """The BOS token's text where the tokenizer puts it before every text, else an empty one."""
    ids = token_lists(tokenizer, ["a"])[0]
    bos = getattr(tokenizer, "bos_token", None)
    return str(bos) if bos and len(ids) > 1 and ids[0] == tokenizer.bos_token_id else ""


def differences(tokenizer: Any, sent: list[int], wanted: list[int]) -> str:
    """What /generate would put around a rendered prompt, in words; empty where it sends what a chat endpoint does."""
    if sent == wanted:
        return ""
    size = len(wanted)
    for place, same, extra in (("before", sent[-size:], sent[:-size]), ("after", sent[:size], sent[size:])):
        if same == wanted:
            names = " ".join(map(str, tokenizer.convert_ids_to_tokens(extra)))
            return f"the tokenizer puts {names} {place} every prompt, which the chat template does not"
    raise RenderError("the target's chat template renders tokens that no text has, but /generate takes text")


def answer(asked: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Everything but loading the tokenizer. ``input_tokens`` are the first request's, ``all_tokens`` also those of the
    later turns, without replies.
    """
    conversations = asked["conversations"]
    rendered = [index for index, item in enumerate(conversations) if item["render"]]
    template = Template(tokenizer, asked["template"], asked["kwargs"]) if rendered else None
    bos = added_bos(tokenizer)
    prompts = [_prompt(index, item, template, bos) for index, item in enumerate(conversations)]
    counted = token_lists(tokenizer, [prompt["text"] for prompt in prompts])
    notes = template.unread() if template else []
    for index in rendered[:CHECKED]:
        assert template is not None
        found = differences(tokenizer, counted[index], template.ids(conversations[index]["turns"][0]))
        notes += [found] if found and found not in notes else []
    for prompt, ids in zip(prompts, counted, strict=True):
        later = token_lists(tokenizer, prompt["follow_ups"])
        prompt.update(input_tokens=len(ids), all_tokens=len(ids) + sum(map(len, later)))
    return {"prompts": prompts, "notes": notes}


def _prompt(index: int, item: dict[str, Any], template: Template | None, bos: str) -> dict[str, Any]:
    turns = item["turns"]
    if not item["render"] or template is None:
        return {"text": turns[0][0]["content"], "follow_ups": [], "history": {}}
    if MARK in json.dumps(turns):
        raise RenderError(f"the prompt holds {MARK}, which stands for replies here", index)
    try:
        first, follow_ups, tail = segments(template, turns)
        if follow_ups and not template.rules:
            template.rules = reply_rules(template, turns)
        history = {"tail": tail, **template.rules} if follow_ups else {}
    except RenderError as error:
        raise RenderError(str(error), index) from None
    except Exception as error:  # whatever a template or a tokenizer's own code raises
        raise RenderError(f"the chat template refuses it: {said(error)}", index) from None
    text = first[len(bos) :] if bos and first.startswith(bos) else first
    return {"text": text, "follow_ups": follow_ups, "history": history}


def answer_or_error(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to one input, errors included."""
    try:
        tokenizer, loader = load_tokenizer(asked)
        result = answer(asked, tokenizer)
        if loader != "SGLang":
            result["notes"].append(f"tokens as {loader} counts them: SGLang's own loader cannot be imported")
        return result
    except RenderError as error:
        return {"error": str(error), "index": error.index}
    except Exception as error:
        # Another machine may well have the checkpoint, or reach the hub.
        return {
            "error": f"its tokenizer cannot be loaded or used: {said(error)}",
            "index": None,
            "here": True,
        }


def main() -> None:
    # This folder's names must not stand before those of installed packages.
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
    asked = json.load(sys.stdin)
    results = os.dup(1)
    os.dup2(2, 1)  # whatever the libraries print must not mix with the result
    with os.fdopen(results, "w") as out:
        json.dump(answer_or_error(asked), out)


if __name__ == "__main__":
    main()
