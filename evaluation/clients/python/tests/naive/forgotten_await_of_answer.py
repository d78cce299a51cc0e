"""A member of an answer that was not awaited."""

# comes of it: AttributeError
from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    return "acted" if client.evaluate(question).permitted else "refused"  # refused: mypy attr-defined, pyright reportAttributeAccessIssue
