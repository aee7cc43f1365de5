"""Answers of the server as JSON."""

import json
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

_SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not accept this method.",
}


def json_response(content: Any, status: int = 200) -> Response:  # noqa: ANN401 - any JSON
    """Format an answer; characters beyond ASCII are escaped, so that any text can be sent."""
    return Response(format_json(content), status, media_type="application/json")


def error_response(error: HTTPException) -> Response:
    """Format an error as one sentence."""
    is_phrase = error.detail == HTTPStatus(error.status_code).phrase  # Starlette's own errors
    sentence = _SENTENCES.get(error.status_code, error.detail) if is_phrase else error.detail
    response = json_response({"error": sentence}, error.status_code)
    response.headers.update(error.headers or {})
    return response


def failure_response() -> Response:
    """Answer a request that failed in a way that nobody expected."""
    return json_response({"error": "The server failed to answer; its log says why."}, 500)


def format_json(content: Any) -> bytes:  # noqa: ANN401 - any JSON
    """Format JSON on one line.

    Raises
    ------
    ValueError
        If a number is not finite, which JSON cannot hold.
    """
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
