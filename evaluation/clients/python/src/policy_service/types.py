"""The types of the wire."""

from __future__ import annotations

from typing import Any, Literal, Mapping, NotRequired, Required, Sequence, TypedDict, Union

Json = Union[None, bool, int, float, str, Sequence["Json"], Mapping[str, "Json"]]
JsonObject = Mapping[str, Json]


class Entity(TypedDict):
    """A subject or a resource."""

    type: str
    id: str
    properties: NotRequired[Mapping[str, Any]]


class EntityType(TypedDict):
    """The type of the entities that a search looks for."""

    type: str


class Action(TypedDict):
    """An action."""

    name: str
    properties: NotRequired[Mapping[str, Any]]


class Question(TypedDict):
    """A question: may the subject do the action on the resource?"""

    subject: Entity
    action: Action
    resource: Entity
    context: NotRequired[Mapping[str, Any]]


class SubjectQuery(TypedDict):
    """A search for subjects."""

    subject: EntityType
    action: Action
    resource: Entity
    context: NotRequired[Mapping[str, Any]]


class ResourceQuery(TypedDict):
    """A search for resources."""

    subject: Entity
    action: Action
    resource: EntityType
    context: NotRequired[Mapping[str, Any]]


class ActionQuery(TypedDict):
    """A search for actions."""

    subject: Entity
    resource: Entity
    context: NotRequired[Mapping[str, Any]]


class Obligation(TypedDict):
    """An act that the PDP wants done besides."""

    id: str
    type: str
    properties: Mapping[str, Any]


Semantic = Literal["execute_all", "deny_on_first_deny", "permit_on_first_permit"]


class Task(TypedDict, total=False):
    """An approval request that was filed. It is JSON as it is, and permits nothing."""

    version: Required[Literal[1]]
    pdp: Required[str]
    id: Required[str]
    status_endpoint: Required[str]
    cancel: str
    expires_at: str
