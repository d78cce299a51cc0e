"""A protected endpoint that does not take the request."""

# comes of it: TypeError
import asyncio

from policy_service import Client, Question
from policy_service.starlette import protect


def careless(client: Client, question: Question) -> str:
    @protect(client, lambda request: question)
    def endpoint() -> str:
        return "acted"

    return str(asyncio.run(endpoint()))  # refused: mypy arg-type, pyright reportArgumentType
