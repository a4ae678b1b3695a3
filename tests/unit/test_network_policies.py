"""The network policies of deploy/: which pod may reach what, judged as a network plugin does."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from domain import egress
from infra.settings import EgressGuardSettings
from tests.support import deploy_files as deployment

OURS = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
NAMESPACE = "kubernetes.io/metadata.name"

POLICIES = [each["spec"] for each in deployment.manifests() if each["kind"] == "NetworkPolicy"]
PODS = {
    labels[COMPONENT]: {**labels, OURS: "haulage"}
    for each in deployment.manifests()
    if each["kind"] in {"Deployment", "Job"}
    for labels in [each["spec"]["template"]["metadata"]["labels"]]
}
CARRIERS = {
    "worker-downloads",
    "worker-downloads-fetch",
    "worker-webhooks",
    "worker-transfers-files",
    "worker-orders",
    "worker-addresses",
}
"""The pods that call sources, platforms, GSE, modules and receivers."""
CLOSED = [
    "169.254.169.254",  # metadata of most clouds
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "10.96.0.1",  # the API server of Kubernetes
    "172.20.0.1",
    "192.168.1.1",
    "127.0.0.1",
    "0.0.0.0",  # noqa: S104
    "198.18.0.1",
    "224.0.0.1",
    "fd00:ec2::254",
    "fe80::1",
    "::1",
    "2001:db8::1",
    "2002:a9fe:a9fe::",  # 169.254.169.254 in 6to4
]
PUBLIC = ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector chooses a pod."""
    chosen = all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())
    return chosen and all(labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", []))


def rules_of(pod: str) -> list[dict[str, Any]]:
    """The egress rules of all policies that choose a pod."""
    return [
        rule
        for policy in POLICIES
        if "Egress" in policy["policyTypes"] and matches(policy["podSelector"], PODS[pod])
        for rule in policy.get("egress", [])
    ]


def may_reach(pod: str, address: str, port: int) -> bool:
    """Whether a pod may open a connection to an address outside of the cluster."""
    return any(
        _contains(peer["ipBlock"], address)
        for rule in rules_of(pod)
        if port in {each["port"] for each in rule.get("ports", [])} or "ports" not in rule
        for peer in rule.get("to") or [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]
        if "ipBlock" in peer
    )


def _contains(block: dict[str, Any], address: str) -> bool:
    target = ip_address(address)
    return target in ip_network(block["cidr"]) and not any(
        target in ip_network(each) for each in block.get("except", [])
    )


def test_every_pod_is_judged() -> None:
    """Each of our pods is chosen by a policy for both directions; else everything would be open to it."""
    assert PODS.keys() >= {"api", "migrate", "worker-tasks", *CARRIERS}
    for pod, labels in PODS.items():
        chosen = {
            kind for policy in POLICIES if matches(policy["podSelector"], labels) for kind in policy["policyTypes"]
        }
        assert chosen == {"Ingress", "Egress"}, pod


def test_every_rule_names_its_destination_and_its_ports() -> None:
    """A rule without `to` is open to every address, and one without `ports` to every port."""
    rules = [rule for policy in POLICIES for rule in policy.get("egress", [])]
    assert rules
    assert [rule for rule in rules if not rule.get("to") or not rule.get("ports")] == []


@pytest.mark.parametrize("address", CLOSED)
@pytest.mark.parametrize("pod", PODS)
def test_what_the_guard_closes_no_pod_reaches(pod: str, address: str) -> None:
    """Also code in a container that goes around the guard does not reach it."""
    assert not egress.is_public(egress.parse_address(address))
    ports = {80, 443, 6443, 8080, 8443, 7233, 5432}
    assert [port for port in ports if may_reach(pod, address, port)] == []


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_open_where_they_are_needed(address: str) -> None:
    """Carriers reach them on the ports of the guard, the API on 443 for Google's keys, other pods not at all."""
    ports = set(EgressGuardSettings().ports)
    for pod in PODS:
        open_ports = {port for port in {*ports, 22, 25, 5432} if may_reach(pod, address, port)}
        assert open_ports == (ports if pod in CARRIERS else {443} if pod == "api" else set()), pod


def test_blocks_close_exactly_what_the_guard_closes() -> None:
    """A network that is added to one list is missed in the other."""
    blocks = [
        peer["ipBlock"]
        for policy in POLICIES
        for rule in policy.get("egress", [])
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    assert blocks
    for block in blocks:
        is_v4 = block["cidr"] == "0.0.0.0/0"
        assert is_v4 or ip_network(block["cidr"]) == egress.GLOBAL_V6
        assert {*map(ip_network, block["except"])} == {*(egress.CLOSED_V4 if is_v4 else egress.CLOSED_V6)}


def test_foreign_pods_are_chosen_by_expressions() -> None:
    """Kustomize adds our own label to every `matchLabels` of a pod selector, also to those of other namespaces."""
    peers = [peer for policy in POLICIES for rule in policy.get("egress", []) for peer in rule["to"]]
    foreign = [peer for peer in peers if "namespaceSelector" in peer and "podSelector" in peer]
    assert foreign
    assert all(peer["namespaceSelector"]["matchLabels"].keys() == {NAMESPACE} for peer in foreign)
    assert [peer for peer in foreign if "matchLabels" in peer["podSelector"]] == []
