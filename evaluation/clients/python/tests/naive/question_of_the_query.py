"""A question with a parameter that the path of the route does not have."""

# comes of it: TypeError
from fastapi import Depends, FastAPI

from policy_service import Client, Entity, Question
from policy_service.fastapi import protect


def careless(client: Client, question: Question) -> str:
    def about(tool_id: str) -> Question:
        tool: Entity = {"type": "tool", "id": tool_id}
        return {"subject": question["subject"], "action": question["action"], "resource": tool}

    @FastAPI().get("/tools/{id}", dependencies=[Depends(protect(client, about))])
    def route(id: str) -> str:
        return "acted"

    return route("ledger:export_payments")
