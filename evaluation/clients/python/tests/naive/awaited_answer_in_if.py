"""The awaited answer in an if."""

# comes of it: TypeError
from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    return "acted" if await client.evaluate(question) else "refused"  # refused: pyright reportGeneralTypeIssues
