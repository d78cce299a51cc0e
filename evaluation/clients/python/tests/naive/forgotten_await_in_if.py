"""A forgotten await in an if."""

# comes of it: TypeError
from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    if client.evaluate(question):  # refused: mypy truthy-bool, pyright reportUnnecessaryComparison
        return "acted"
    return "refused"
