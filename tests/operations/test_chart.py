"""The Helm chart, linted and rendered by Helm itself (its library of the version that helm_python carries): what it
renders meets the schemas of Kubernetes, gives every pod the same confinement, and lets pass what services call."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml
from kubernetes_validate import utils as kubernetes_schemas

from croupier.cli.console import ExitCode
from croupier.deploy.render.layout import Layout, called_by
from croupier.operator.init import initialise
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, load_deployment
from croupier.runtime.service_directory import ServiceSettings

CHART = Path(__file__).parents[2] / "deploy" / "helm"
COMPOSED = yaml.safe_load((CHART.parent / "compose" / "compose.yaml").read_text())["services"]["shuffler-1"]
PEERS, PUBLIC, ADMIN, METRICS = 7100, 7101, 7102, 7103
pytestmark = pytest.mark.xdist_group("chart")  # the library of Helm is loaded in one process
Document = dict[str, Any]
STUDY = {"enabled": True, "file": "name = 'wellbeing'\n"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment with the names of a cluster, as the chart's README makes it."""
    place = tmp_path_factory.mktemp("d") / "clinic"
    hosts = [f"{name}.croupier.svc" for name in ("shuffler-1", "shuffler-2", "shuffler-3", "accountant", "analyzer")]
    public = [f"{hosts[0]},answers.example", hosts[1], hosts[2]]
    layout = Layout.of("clinic", public, f"{hosts[3]},tickets.example", f"{hosts[4]},results.example")
    initialise(place, layout, "compose")
    return place


@pytest.fixture(scope="module")
def text(directory: Path) -> str:
    return (directory / DEPLOYMENT_FILE).read_text()


@pytest.fixture(scope="module")
def deployment(directory: Path) -> Deployment:
    return load_deployment(directory / DEPLOYMENT_FILE)


def rendered(values: Mapping[str, Any]) -> dict[str, dict[str, Document]]:
    """Returns what Helm renders, by kind and name."""
    documents: dict[str, dict[str, Document]] = {}
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(dict(values))
        for file, content in chart.render(dict(values), name="clinic", namespace="croupier").items():
            if not file.endswith(".txt"):
                for document in filter(None, yaml.safe_load_all(content)):
                    of_kind = documents.setdefault(document["kind"], {})
                    assert document["metadata"]["name"] not in of_kind
                    of_kind[document["metadata"]["name"]] = document
    return documents


@pytest.fixture(scope="module")
def whole(text: str) -> dict[str, dict[str, Document]]:
    """All services in one cluster, with a gateway."""
    return rendered({"deployment": text, "gateway": {"enabled": True}})


def elsewhere(deployment: Deployment, *here: str) -> dict[str, list[str]]:
    names = [name for name in deployment.chain if name not in here]
    return {name: [f"203.0.113.{number}/32"] for number, name in enumerate(names, 1)}


def pod_of(document: Document) -> tuple[Document, Document]:
    pod: Document = document["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_helm_finds_nothing_wrong_with_the_chart(text: str, deployment: Deployment, tmp_path: Path) -> None:
    alone = {"services": ["shuffler-2"], "elsewhere": elsewhere(deployment, "shuffler-2")}
    for more in ({}, {"gateway": {"enabled": True}}, {"study": STUDY}, alone):
        report = helm_python.lint(CHART, {"deployment": text, **more}, strict=True, namespace="croupier")
        assert report["errors"] == []
        assert [message for message in report["messages"] if message["severity"] > 1] == []  # 1 is for information
    worse = tmp_path / "worse"
    worse.mkdir()
    for file in (name for name in CHART.rglob("*") if name.is_file()):
        copy = worse / file.relative_to(CHART)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(file.read_text().replace("kind: ConfigMap", "kind ConfigMap"))
    assert helm_python.lint(worse, {"deployment": text}, strict=True)["errors"]


def test_the_chart_has_the_version_and_the_limits_of_containers() -> None:
    with helm_python.Chart.load(CHART) as chart:
        assert {chart.metadata[name] for name in ("version", "appVersion")} == {version("croupier")}
        values = chart.values["resources"]
    assert (COMPOSED["mem_limit"], COMPOSED["stop_grace_period"]) == (
        f"{values['memoryMiB']}m",
        f"{values['stopSeconds']}s",
    )
    assert COMPOSED["healthcheck"]["start_period"] == f"{values['startSeconds']}s"
    assert COMPOSED["tmpfs"][0].startswith(f"/tmp:size={values['tmpMiB']}m,")


@pytest.mark.parametrize("kubernetes", ["1.29", kubernetes_schemas.latest_version()])
def test_everything_rendered_meets_the_schema_of_kubernetes(
    kubernetes: str,
    whole: dict[str, dict[str, Document]],
    text: str,
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = functools.cache(kubernetes_schemas.schema_contents)  # 2 MB, read for every document otherwise
    monkeypatch.setattr(kubernetes_schemas, "schema_contents", cached)
    alone = rendered(
        {"deployment": text, "services": ["analyzer"], "elsewhere": elsewhere(deployment, "analyzer")}
        | {"image": {"digest": f"sha256:{64 * '0'}", "pullSecrets": ["registry"]}, "waiting": "analyzer"}
    )
    for kinds in (whole, alone, rendered({"deployment": text, "study": STUDY})):
        for document in (document for of_kind in kinds.values() for document in of_kind.values()):
            kubernetes_schemas.validate(document, kubernetes, strict=True)
    broken = dict(whole["ConfigMap"]["croupier-settings"], dta={})
    with pytest.raises(kubernetes_schemas.ValidationError):
        kubernetes_schemas.validate(broken, kubernetes, strict=True)


def test_pods_are_confined_and_probed_on_the_health_port(
    whole: dict[str, dict[str, Document]], deployment: Deployment
) -> None:
    assert list(whole["StatefulSet"]) == list(deployment.chain)
    for name, document in {**whole["StatefulSet"], **whole["Deployment"]}.items():
        pod, container = pod_of(document)
        user = int(COMPOSED["user"].partition(":")[0])
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["image"] == f"croupier:{version('croupier')}"
        if name == "gateway":
            continue
        assert document["spec"]["replicas"] == 1
        assert container["command"] == ["croupier", "serve", name, "--dir", "/var/lib/croupier"]
        assert container["readinessProbe"]["grpc"] == {"port": ADMIN}
        assert container["livenessProbe"]["grpc"] == {"port": ADMIN, "service": "live"}
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        own = {f"/var/lib/croupier/{name}/{file}" for file in ("service.toml", "identity.key", "tls.key", "tls.crt")}
        assert own | {f"/var/lib/croupier/{name}", "/var/lib/croupier/deployment.toml"} <= mounted
        secrets = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        assert secrets == {f"{name}-keys", f"{name}-storage-key"}
        public = [port["containerPort"] for port in container["ports"] if port["name"] == "public"]
        assert public == ([PUBLIC] if deployment.service(name).public_address else [])


def test_the_chart_makes_no_secret_and_takes_none(whole: dict[str, dict[str, Document]]) -> None:
    """Values lie readable in the cluster's record of a release: keys come in secrets that the chart only names."""
    assert set(whole) == {"ConfigMap", "Deployment", "NetworkPolicy", "Service", "StatefulSet"}
    assert set(whole["ConfigMap"]) == {"croupier-deployment", "croupier-settings"}
    with helm_python.Chart.load(CHART) as chart:
        schema = chart.schema
        with pytest.raises(helm_python.HelmValuesError, match="storageKey"):
            chart.validate_schema({"storageKey": 64 * "0"})
    assert schema is not None
    assert not [name for name in schema["properties"] if "key" in name.lower() or "secret" in name.lower()]


def test_a_pod_reads_the_deployment_file_and_settings_as_they_are(
    whole: dict[str, dict[str, Document]], text: str, deployment: Deployment, tmp_path: Path
) -> None:
    (tmp_path / DEPLOYMENT_FILE).write_text(whole["ConfigMap"]["croupier-deployment"]["data"][DEPLOYMENT_FILE])
    assert load_deployment(tmp_path / DEPLOYMENT_FILE) == deployment
    config = whole["ConfigMap"]["croupier-settings"]["data"]["service.toml"]
    settings = ServiceSettings.model_validate(tomllib.loads(config))
    ports = {PEERS: settings.listen, PUBLIC: settings.public_listen}
    ports |= {ADMIN: settings.admin_listen, METRICS: settings.metrics_listen}
    assert all(address == f"0.0.0.0:{port}" for port, address in ports.items())
    (volume,) = [
        mount for mount in pod_of(whole["StatefulSet"]["analyzer"])[1]["volumeMounts"] if mount["name"] == "storage-key"
    ]
    assert settings.storage_key == f"file:{volume['mountPath']}/storage.key"
    assert settings.workers == 4
    # Files are mounted one by one: a pod sees a changed one after a restart only.
    before, after = (
        rendered({"deployment": content})["StatefulSet"]["analyzer"]["spec"]["template"]["metadata"]["annotations"]
        for content in (text, f"{text}# next\n")
    )
    assert before["checksum/configuration"] != after["checksum/configuration"]


def test_clients_keep_their_addresses_on_their_way_to_a_service(
    whole: dict[str, dict[str, Document]], deployment: Deployment
) -> None:
    """All of them had their node's address, and so one share of everything."""
    public = {
        name: document["spec"]
        for name, document in whole["Service"].items()
        if document["spec"].get("type") == "LoadBalancer"
    }
    taking = [entry.name for entry in deployment.services if entry.public_address]
    assert sorted(public) == sorted([*(f"{name}-public" for name in taking), "gateway"])
    assert {spec["externalTrafficPolicy"] for spec in public.values()} == {"Local"}


def allowed(kinds: dict[str, dict[str, Document]], direction: str, peer: str) -> set[tuple[str, str, int]]:
    """Returns (caller, callee, port) for everything that the policies of one direction let pass between components."""
    ports = set()
    for policy in kinds["NetworkPolicy"].values():
        here = policy["spec"]["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/component", "any")
        for rule in policy["spec"].get(direction) or []:
            for source in rule.get(peer) or [{}]:
                labels = source.get("podSelector", {}).get("matchLabels", {})
                there = labels.get("app.kubernetes.io/component", "any" if labels else "outside")
                there = source.get("ipBlock", {}).get("cidr", there)
                for port in rule["ports"]:
                    pair = (there, here) if direction == "ingress" else (here, there)
                    ports.add((*pair, port["port"]))
    return ports


def calls(deployment: Deployment) -> set[tuple[str, str, int]]:
    services = deployment.services
    return {(caller.name, callee.name, PEERS) for caller in services for callee in called_by(services, caller)}


def test_the_network_lets_pass_what_services_call_and_nothing_else(text: str, deployment: Deployment) -> None:
    kinds = rendered({"deployment": text})
    operator = {("operator", callee, PEERS) for callee in deployment.chain}
    clients = {("outside", entry.name, PUBLIC) for entry in deployment.services if entry.public_address}
    expected = calls(deployment) | operator | clients | {("outside", "any", METRICS)}
    assert allowed(kinds, "ingress", "from") == expected
    names = {("any", "outside", 53)}
    asked = {("operator", "any", PEERS), ("operator", "any", PUBLIC)}
    assert allowed(kinds, "egress", "to") == calls(deployment) | names | asked
    deny = kinds["NetworkPolicy"]["deny-everything"]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in kinds["NetworkPolicy"].values():
        for rule in policy["spec"].get("ingress", []):
            if rule["ports"] == [{"port": METRICS, "protocol": "TCP"}]:
                (source,) = rule["from"]
                assert source == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


@pytest.mark.parametrize("hops", [1, 2])
def test_the_network_of_shorter_chains_is_right_too(hops: int, tmp_path: Path) -> None:
    layout = Layout.of("clinic", [f"h{hop}.example" for hop in range(hops)], "a.example", "b.example")
    initialise(tmp_path / "d", layout, "compose")
    deployment = load_deployment(tmp_path / "d" / DEPLOYMENT_FILE)
    kinds = rendered({"deployment": (tmp_path / "d" / DEPLOYMENT_FILE).read_text()})
    assert {pair for pair in allowed(kinds, "egress", "to") if pair[1] in deployment.chain} == calls(deployment)


def test_an_organisation_installs_its_service_beside_addresses(text: str, deployment: Deployment) -> None:
    own, others = "shuffler-2", elsewhere(deployment, "shuffler-2") | {"operator": ["198.51.100.9/32"]}
    kinds = rendered({"deployment": text, "services": [own], "elsewhere": others})
    assert list(kinds["StatefulSet"]) == [own]
    assert set(kinds["Service"]) == {own, f"{own}-peers"}  # hop 2 takes no clients
    assert kinds["Service"][f"{own}-peers"]["spec"]["externalTrafficPolicy"] == "Local"
    where = {name: blocks[0] for name, blocks in others.items()}
    callers = {where[caller] for caller, callee, _ in calls(deployment) if callee == own} | {where["operator"]}
    called = {where[callee] for caller, callee, _ in calls(deployment) if caller == own}
    assert {pair[0] for pair in allowed(kinds, "ingress", "from") if pair[2] == PEERS} == callers
    assert {pair[1] for pair in allowed(kinds, "egress", "to") if pair[2] == PEERS} == called
    assert "operator" not in kinds["NetworkPolicy"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"deployment": ""}, "deployment is empty: give the signed file with --set-file deployment=deployment.toml"),
        ({"deployment": "name ="}, "deployment is not TOML"),
        ({"deployment": "name = 'clinic'"}, r"deployment has no \[\[services\]\]"),
        ({"services": ["shuffler-9"]}, "services has shuffler-9; the deployment has shuffler-1, "),
        ({"services": ["shuffler-2"]}, "elsewhere.shuffler-1 is missing"),
        ({"elsewhere": {"analyzer": ["203.0.113.7/32"]}}, "elsewhere has analyzer, which runs in this cluster"),
        ({"waiting": "nobody"}, "waiting is nobody; the deployment has shuffler-1, "),
        ({"image": {"digest": "latest"}}, "image/digest|image.digest"),
        ({"elsewhere": {"analyzer": ["203.0.113.7"]}}, "elsewhere"),
        ({"resources": {"memoryMiB": 1}}, "memoryMiB"),
        ({"study": {"enabled": True}}, "study.file is empty: give the study with --set-file study.file=study.toml"),
        ({"study": STUDY, "elsewhere": {"operator": ["198.51.100.9/32"]}}, "elsewhere has operator"),
    ],
)
def test_wrong_values_are_refused_with_the_value(values: Document, message: str, text: str) -> None:
    with pytest.raises(helm_python.HelmError, match=message):
        rendered({"deployment": text, **values})


def test_a_service_waits_for_its_storage_key_without_probes(text: str) -> None:
    """Else the kubelet would end the pod, which does not answer."""
    sets = rendered({"deployment": text, "waiting": "shuffler-1"})["StatefulSet"]
    waits = pod_of(sets["shuffler-1"])[1]
    assert waits["command"] == ["sleep", "infinity"]
    assert not [name for name in waits if name.endswith("Probe")]
    assert pod_of(sets["shuffler-2"])[1]["command"][:2] == ["croupier", "serve"]


def test_the_gateway_has_no_key_and_is_ready_while_it_reaches_hop_1(
    whole: dict[str, dict[str, Document]], text: str
) -> None:
    pod, container = pod_of(whole["Deployment"]["gateway"])
    listens, secured, key = [word for word in container["command"] if "=" in word][1:]
    assert listens == "--listen=0.0.0.0:8443"
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert all(mounted[Path(word.partition("=")[2]).parent.as_posix()] == "tls" for word in (secured, key))
    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == ["gateway-tls"]
    assert container["command"][:3] == ["croupier", "gateway", "--dir=/var/lib/croupier"]
    assert "/var/lib/croupier/deployment.toml" in mounted
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8443, "scheme": "HTTPS"}
    assert "httpGet" not in container["livenessProbe"]  # it does not restart because hop 1 is down
    assert whole["Service"]["gateway"]["spec"]["externalTrafficPolicy"] == "Local"
    policy = whole["NetworkPolicy"]["gateway"]["spec"]
    assert policy["egress"] == [{"ports": [{"port": PUBLIC, "protocol": "TCP"}]}]
    assert "Deployment" not in rendered({"deployment": text})  # only where it is asked for


def test_a_study_ends_for_good_and_is_started_again_after_a_crash(text: str) -> None:
    kinds = rendered({"deployment": text, "study": STUDY})
    (job,) = kinds["Job"].values()
    pod, container = pod_of(job)
    ended, evicted = job["spec"]["podFailurePolicy"]["rules"]
    codes = [int(code) for code in (ExitCode.BAD_INPUT, ExitCode.REFUSED)]
    assert ended == {
        "action": "FailJob",
        "onExitCodes": {"containerName": container["name"], "operator": "In", "values": codes},
    }
    assert evicted["action"] == "Ignore"
    assert pod["restartPolicy"] == "Never"  # Kubernetes takes a podFailurePolicy with no other
    assert container["command"][:3] == ["croupier", "survey", "run"]
    # The policy that lets the operator call the services names the label of this pod.
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert kinds["NetworkPolicy"]["operator"]["spec"]["podSelector"]["matchLabels"] == labels
    (claim,) = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert kinds["PersistentVolumeClaim"][claim["claimName"]]["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == ["operator-keys"]
    other = rendered({"deployment": text, "study": STUDY | {"file": "name = 'other'\n"}})
    assert set(other["Job"]).isdisjoint(kinds["Job"])  # the pod of a Job cannot be changed
    assert "Job" not in rendered({"deployment": text})  # only where it is asked for
