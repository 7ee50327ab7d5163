"""``python -m sglang.launch_server``: serves in half a second, at rates and with faults that tests choose.

The environment variable FAKE_FAULTS holds JSON: {"<draft path's last part>": "<fault>"} with the faults
``crash_at_start``, ``crash_while_serving``, ``error_in_stream``, ``abort``, ``no_counters``, ``other_tokens``,
``one_token`` (over and over), ``hang``, ``no_finish`` (the stream just ends), ``merged_chunks`` (four steps in
one), ``slows_down`` (to an eighth of its speed after 28 requests), ``slow`` (always a fifth of its speed),
``other_steps`` (it says it runs 1/1/2), ``refuses_weights``, ``deaf_to_weights`` (it takes them and goes on with its
own), ``garbled_weights`` (it accepts nothing with others), ``corrupted_by_weights`` (its tokens become others),
``dies_of_weights``,
``out_of_memory`` (above a memory share of 0.8), ``port_taken`` (once; FAKE_STATE names a directory to remember it in),
``tells_secrets`` (its environment and command line, with terminal sequences, into its log; then it serves) and
``dies_telling`` (it tells and crashes); "" as the key means the launch without a draft.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
import zlib
from pathlib import Path
from urllib.parse import quote

from aiohttp import web

from sglang.ranks import meet

FLAGS = Path(__file__).parents[2] / "server" / "flags" / "0.5.23.txt"
STEP_S = 0.002
"""Seconds of a decoding step without speculation; every draft step adds a tenth of it."""
SERVED: list[str] = []
UPDATES: list[str] = []
"""What was done to its weights."""


def parse() -> argparse.Namespace:
    """Every flag of the real release: its own list is the help text, and an unknown flag is an error."""
    parser = argparse.ArgumentParser(prog="launch_server.py", allow_abbrev=False)
    for names in (line.split() for line in FLAGS.read_text().splitlines()):
        parser.add_argument(*names, nargs="*")
    parsed = parser.parse_args()
    for name, value in vars(parsed).items():
        setattr(parsed, name, value if value is None or len(value) > 1 else (value or [True])[0])
    return parsed


def number(name: str) -> int:
    return int(getattr(ARGS, name) or 0)


ARGS = parse()
STEPS, TOPK = number("speculative_num_steps"), number("speculative_eagle_topk")
TOKENS = STEPS + 1 if TOPK == 1 else number("speculative_num_draft_tokens")
if ARGS.speculative_algorithm == "NGRAM":
    TOPK = number("speculative_ngram_max_bfs_breadth")
    STEPS = max(1, TOKENS // TOPK)
DRAFT = os.path.basename(ARGS.speculative_draft_model_path or "")
FAULT = json.loads(os.environ.get("FAKE_FAULTS", "{}")).get(DRAFT, "")
LOADED = [DRAFT]
"""Names of the checkpoints whose weights it got, one after another."""


def target_tokens(prompt: str, count: int) -> list[int]:
    """The target's greedy output: a fixed function of the prompt."""
    tokens = [zlib.crc32(f"{prompt} {i}".encode()) % 2048 for i in range(count)]
    if FAULT == "one_token":
        return [7] * count
    if FAULT == "other_tokens" or (FAULT == "corrupted_by_weights" and UPDATES):
        tokens[8:] = [(token + 1) % 2048 for token in tokens[8:]]
    return tokens


def accepted(prompt: str, round_: int) -> int:
    """Drafts accepted in a verify round: about 1.5 of STEPS."""
    if FAULT == "garbled_weights" and UPDATES:
        return 0
    return min(zlib.crc32(f"{round_} {prompt}".encode()) % 4, STEPS)


async def generate(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    prompt, count = body["text"], body["sampling_params"]["max_new_tokens"]
    tokens = target_tokens(prompt, count)
    if not body.get("stream"):
        top = [[[-0.1, t, None], [-3.1, 0, None]] for t in tokens]
        meta = {"completion_tokens": count, "output_top_logprobs": top}
        return web.json_response({"output_ids": tokens, "meta_info": meta})
    response = web.StreamResponse()
    await response.prepare(request)
    sent, rounds, drafts, histogram = 0, 0, 0, [0] * (STEPS + 1)
    held: list[int] = []
    SERVED.append(prompt)
    slower = 5 if FAULT == "slow" else 8 if FAULT == "slows_down" and len(SERVED) > 28 else 1
    while sent < count:
        await asyncio.sleep(STEP_S * (1 + STEPS / 10) * slower)
        step = 1
        if sent and STEPS:
            kept = accepted(prompt, rounds)
            rounds, drafts, step = rounds + 1, drafts + kept, kept + 1
            histogram[kept] += 1
        delta = tokens[sent : sent + step]
        sent += len(delta)
        held += delta
        if FAULT == "hang" and sent > count // 2:
            await asyncio.sleep(3600)
        if FAULT == "crash_while_serving" and sent > count // 2:
            print(
                "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: planted",
                flush=True,
            )
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "error_in_stream" and sent > count // 2:
            await response.write(b'data: {"error": {"message": "planted error"}}\n\n')
            break
        if FAULT == "no_finish" and sent > count // 2:
            break
        if FAULT == "merged_chunks" and rounds % 4 and sent < count:
            continue
        delta, held = held, []
        text = "".join(f" {token}" for token in delta)
        meta = {"completion_tokens": sent, "prompt_tokens": 8, "cached_tokens": 0, "finish_reason": None}
        if sent == count:
            meta["finish_reason"] = {
                "type": "abort" if FAULT == "abort" else "length",
                "message": "planted abort",
            }
            if rounds and FAULT != "no_counters":
                meta |= {
                    "spec_verify_ct": rounds,
                    "spec_num_correct_drafts": drafts,
                    "spec_correct_drafts_histogram": histogram,
                }
        await response.write(
            b"data: " + json.dumps({"text": text, "output_ids": delta, "meta_info": meta}).encode() + b"\n\n"
        )
    await response.write(b"data: [DONE]\n\n")
    return response


async def server_info(_: web.Request) -> web.Response:
    steps, tokens = (1, 2) if FAULT == "other_steps" else (STEPS, TOKENS)
    info = {
        "version": "0.5.23",
        "api_key": ARGS.api_key,
        "speculative_algorithm": ARGS.speculative_algorithm or None,
        "speculative_num_steps": steps or None,
        "speculative_eagle_topk": TOPK or None,
        "speculative_num_draft_tokens": tokens or None,
        "max_running_requests": number("max_running_requests"),
        "page_size": 1,
        "disable_overlap_schedule": bool(STEPS),
    }
    return web.json_response({**info, "internal_states": [info]})


def tell() -> None:
    """Print every secret in every form in which logs write such things, and what a terminal would obey."""
    for name, value in os.environ.items():
        if "TOKEN" in name or "KEY" in name or "PASSWORD" in name:
            print(
                f"\x1b[31moverriding {name}={value}\x1b[0m {value!r} {json.dumps(value)} {quote(value, safe='')}"
            )
    print(f"argv {sys.argv}\x1b]0;owned\x07\x1b[2J\r[bold red]not markup[/]")
    print(f"https://me:{os.environ.get('HF_TOKEN')}@hub", flush=True)


async def weights(request: web.Request) -> web.Response:
    """Takes a draft's tensors between a beginning and an end, as 0.5.21 does."""
    step, body = request.path.removeprefix("/"), await request.json()
    if FAULT == "dies_of_weights":
        os._exit(1)
    expected = ("begin_weight_update", "update_weights_from_tensor", "end_weight_update")[len(UPDATES) % 3]
    handles = body.get("serialized_named_tensors", [""])
    right = (
        step == expected and body.get("selector", "draft") == "draft" and len(handles) == number("tp_size")
    )
    if request.headers.get("Authorization") != f"Bearer {ARGS.api_key}" or not right:
        return web.json_response({"success": False, "message": f"{step} instead of {expected}"}, status=400)
    UPDATES.append(step)
    refused = FAULT == "refuses_weights" and step == "update_weights_from_tensor"
    if step == "update_weights_from_tensor" and FAULT != "deaf_to_weights":
        LOADED.append(body["weight_version"])
    return web.json_response({"success": not refused, "message": "planted refusal" if refused else "ok"})


async def checksum(_: web.Request) -> web.Response:
    """Of the draft's weights: its name does as well."""
    return web.json_response({"success": True, "per_engine_checksum": LOADED[-1]})


async def fine(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def main() -> None:
    print(f"server_args={vars(ARGS)}", flush=True)
    if FAULT == "out_of_memory" and float(ARGS.mem_fraction_static or 0.88) > 0.8:
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", flush=True)
        sys.exit(1)
    if FAULT == "port_taken" and not os.path.exists(f"{os.environ['FAKE_STATE']}/port_taken"):
        Path(os.environ["FAKE_STATE"], "port_taken").touch()
        print(
            "ERROR: [Errno 98] error while attempting to bind on address: address already in use", flush=True
        )
        time.sleep(60)
    if FAULT in ("tells_secrets", "dies_telling"):
        tell()
    if FAULT == "dies_telling":
        token = os.environ.get("HF_TOKEN")
        print(f"RuntimeError: mat1 and mat2 shapes cannot be multiplied, token {token}\x1b[1m", flush=True)
        sys.exit(1)
    if FAULT == "crash_at_start":
        time.sleep(0.2)
        print("RuntimeError: mat1 and mat2 shapes cannot be multiplied (29x192 and 96x32)", flush=True)
        sys.exit(1)
    meet(ARGS)
    app = web.Application()
    app.add_routes([web.post("/generate", generate), web.post("/flush_cache", fine)])
    app.add_routes([web.post("/abort_request", fine)])
    steps = ("begin_weight_update", "update_weights_from_tensor", "end_weight_update")
    app.add_routes([web.post(f"/{step}", weights) for step in steps])
    app.add_routes([web.post("/weights_checker", checksum)])
    app.add_routes([web.get("/server_info", server_info), web.get("/ready", fine)])
    web.run_app(app, host=ARGS.host, port=number("port"), print=None, shutdown_timeout=0.5)


if __name__ == "__main__":
    main()
