"""A search in an if."""

# comes of it: TypeError
from policy_service import AsyncClient, Question


async def careless(client: AsyncClient, question: Question) -> str:
    subject, action = question["subject"], question["action"]
    if client.search_resources({"subject": subject, "action": action, "resource": {"type": "nothing"}}):  # refused: pyright reportGeneralTypeIssues
        return "acted"
    return "refused"
