"""With in the place of async with."""

# comes of it: TypeError
from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    with client.enforce(question):  # refused: mypy attr-defined, pyright reportGeneralTypeIssues
        return "acted"
