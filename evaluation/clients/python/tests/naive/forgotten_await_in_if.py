"""A forgotten await in an if."""

# comes of it: TypeError
from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    if client.evaluate(question):
        return "acted"
    return "refused"
