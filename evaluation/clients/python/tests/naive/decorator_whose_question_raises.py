"""A decorator whose question raises."""

# comes of it: KeyError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    @client.enforced(lambda: {**question, "resource": {"type": "tool", "id": {}["tool"]}})  # refused: mypy misc
    def act() -> str:
        return "acted"

    return act()
