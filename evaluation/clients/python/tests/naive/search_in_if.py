"""A search in an if."""

# comes of it: acted
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    query = {"subject": question["subject"], "action": question["action"], "resource": {"type": "nothing"}}
    if client.search_resources(query):
        return "acted"
    return "refused"
