"""A batch in an if."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    if client.evaluate_batch([question]):  # refused: pyright reportGeneralTypeIssues
        return "acted"
    return "refused"
