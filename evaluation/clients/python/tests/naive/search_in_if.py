"""A search in an if."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    subject, action = question["subject"], question["action"]
    if client.search_resources({"subject": subject, "action": action, "resource": {"type": "nothing"}}):  # refused: pyright reportGeneralTypeIssues
        return "acted"
    return "refused"
