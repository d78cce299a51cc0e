"""All of the gathered answers."""

# comes of it: TypeError
import asyncio

from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    return "acted" if all(await asyncio.gather(client.evaluate(question), client.evaluate(question))) else "refused"
