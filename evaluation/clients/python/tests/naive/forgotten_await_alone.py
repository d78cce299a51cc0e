"""A forgotten await of a statement."""

# comes of it: acted
from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    client.authorize(question)  # refused: mypy unused-coroutine, pyright reportUnusedCoroutine
    return "acted"
