"""Reaches a cluster's job server, or says why not; Ray itself is imported only once something answers."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import requests

from sweeper.errors import SweeperError

if TYPE_CHECKING:
    from actors.jobs import JobServer

CONNECT_S = 10.0
ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
_ADVICE = "give the dashboard's address of the head node, for instance http://10.0.0.1:8265"


def connect(address: str) -> JobServer:
    """The job server at an address.

    A cluster that asks for a token gets that of ``~/.ray/auth_token`` (or ``RAY_AUTH_TOKEN``, ``RAY_AUTH_TOKEN_PATH``).

    Raises:
        SweeperError: nothing answers there, it is no Ray job server, or it refuses the token.
    """
    address = address.rstrip("/")
    if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", address):
        raise SweeperError(f"--address {address}: {_ADVICE}")
    try:
        answer = requests.get(f"{address}/api/version", timeout=CONNECT_S)
    except requests.RequestException as error:
        raise SweeperError(
            f"--address {address}: nothing answers there ({type(error).__name__}); {_ADVICE}; is the port reachable "
            "from here (ray dashboard CLUSTER.yaml or kubectl port-forward make it so)?"
        ) from None
    if answer.status_code in (401, 403):
        os.environ.setdefault(
            "RAY_AUTH_MODE", "token"
        )  # Ray sends none otherwise; it looks when it is imported
    elif "ray_version" not in answer.text:
        raise SweeperError(f"--address {address}: what answers there is no Ray job server; {_ADVICE}")
    os.environ[ADDRESS_VARIABLE] = address  # Ray prefers the variable to what it is told

    from ray.exceptions import AuthenticationError

    from actors.jobs import JobServer

    try:
        return JobServer(address)
    except AuthenticationError:
        raise SweeperError(
            f"--address {address}: the cluster asks for a token and does not accept ours: copy the head node's "
            "~/.ray/auth_token to the same place here, or set RAY_AUTH_TOKEN_PATH"
        ) from None
    except (RuntimeError, ConnectionError, ValueError, requests.RequestException) as error:
        raise SweeperError(f"--address {address}: {error}") from None
