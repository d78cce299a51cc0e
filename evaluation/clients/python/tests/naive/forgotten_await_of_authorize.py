"""A forgotten await of authorize in an if."""

# comes of it: TypeError
from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    return "acted" if client.authorize(question) else "refused"  # refused: mypy truthy-bool, pyright reportUnnecessaryComparison
