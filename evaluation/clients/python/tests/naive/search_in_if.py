"""A search in an if."""

# comes of it: acted
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    subject, action = question["subject"], question["action"]
    if client.search_resources({"subject": subject, "action": action, "resource": {"type": "nothing"}}):  # refused: mypy truthy-bool
        return "acted"
    return "refused"
