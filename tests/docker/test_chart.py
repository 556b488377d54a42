"""The Helm chart: rendered without a cluster, and judged by the schemas of Kubernetes and of its values."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from spark_jobs.config import Settings
from spark_jobs.jvm.executors import executors_conf
from spark_jobs.jvm.java import java_path
from spark_jobs.server import airflow_parts, control
from spark_jobs.settings.sources import IN_SECRET_FILES, REQUIRED
from tests.installations import CHECKOUT, TIDEMARK, until
from tests.programs import find_program, reason_without
from tests.standalone import SECRET, standalone

CHART = CHECKOUT / "docker" / "chart"
KUBERNETES = "1.34"
PLACES = ("--set", "lake=s3a://bucket/lake", "--set", "landing=s3a://bucket/landing")
Document = dict[str, Any]

needs_helm = pytest.mark.skipif(find_program("helm") is None, reason=reason_without("helm"))
AIRFLOWS = sorted((CHART / "charts").glob("airflow-*.tgz"))


def helm(chart: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(find_program("helm")), "template", "lake", str(chart), "--namespace", "data"]
    return subprocess.run(
        [*command, "--kube-version", f"{KUBERNETES}.0", *options], capture_output=True, text=True, check=False
    )


def documents(chart: Path, *options: str) -> list[Document]:
    result = helm(chart, *PLACES, *options)
    assert result.returncode == 0, result.stderr
    return [document for document in yaml.safe_load_all(result.stdout) if document]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart without Airflow's, which no package registry has: its values stay."""
    copy = tmp_path_factory.mktemp("chart") / "tidemark"
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("charts", "Chart.lock"))
    description = yaml.safe_load((copy / "Chart.yaml").read_text())
    del description["dependencies"]
    (copy / "Chart.yaml").write_text(yaml.safe_dump(description))
    return copy


@pytest.fixture(scope="module")
def rendered(chart: Path) -> list[Document]:
    return documents(chart)


def one(rendered: list[Document], kind: str, name: str) -> Document:
    (document,) = [each for each in rendered if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return document


def executor_pod(rendered: list[Document]) -> Document:
    return dict(yaml.safe_load(one(rendered, "ConfigMap", "tidemark-executor")["data"]["pod.yaml"]))


def pods(rendered: list[Document]) -> Iterator[Document]:
    """The specifications of all pods."""
    yield executor_pod(rendered)["spec"]
    for document in rendered:
        if "template" in document.get("spec", {}):
            yield document["spec"]["template"]["spec"]


def expect_valid(rendered: list[Document]) -> None:
    for document in rendered:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


OTHER_VALUES = [
    (),
    ("--set", "airflow.enabled=false,networkPolicy.enabled=false,podDisruptionBudget.enabled=false"),
    ("--set", "store.keys=false,store.endpoint=http://store:7070,ownSources=true,publicUrl=https://a.example.org"),
    ("--set", f"image.digest=sha256:{'0' * 64},image.pullSecrets[0].name=mine,home.storageClass=fast"),
    ("--set", "executors.nodeSelector.pool=big,server.tolerations[0].key=big,server.nodeSelector.pool=small"),
    ("--set-json", 'networkPolicy.sqlFrom=[{"ipBlock":{"cidr":"10.0.0.0/8"}},{"podSelector":{}}]'),
    ("--set-string", "settings.TIDEMARK_BACKUP=s3a://bucket/backup"),
]


@needs_helm
@pytest.mark.parametrize("values", OTHER_VALUES)
def test_kubernetes_accepts_what_the_chart_renders(chart: Path, values: tuple[str, ...]) -> None:
    rendered = documents(chart, *values)
    expect_valid([*rendered, executor_pod(rendered)])


def test_a_document_that_kubernetes_would_refuse_is_refused() -> None:
    document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": "x"}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        expect_valid([document])


@needs_helm
@pytest.mark.skipif(not AIRFLOWS, reason="Airflow's chart is not here; `helm dependency build docker/chart` fetches it")
def test_airflows_own_chart_takes_the_values() -> None:
    rendered = documents(CHART)
    expect_valid(rendered)
    names = {f"{each['kind']}/{each['metadata']['name']}" for each in rendered}
    assert {"Service/tidemark-airflow-api-server", "StatefulSet/tidemark-lake"} <= names


@needs_helm
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("lake=/srv/lake", "lake"),
        ("image.tga=1", "tga"),
        ("server.heap=3gb", "heap"),
        ("executors.instances=0", "instances"),
        ("settings.home=x", "home"),
        ("store.keys=perhaps", "keys"),
        ("networkPolicy.sqlFrom[0].cidr=x", "cidr"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(chart: Path, value: str, words: str) -> None:
    refused = helm(chart, *PLACES, "--set", value)
    assert refused.returncode != 0
    assert words in refused.stderr and "schema" in refused.stderr


@needs_helm
def test_places_have_no_default(chart: Path) -> None:
    refused = helm(chart)
    assert refused.returncode != 0 and "s3a://bucket/lake" in refused.stderr


@needs_helm
def test_every_value_has_a_place_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) | {"global"} == set(schema["properties"])
    for name in ("image", "store", "home", "server", "executors", "networkPolicy", "podDisruptionBudget"):
        assert set(values[name]) == set(schema["properties"][name]["properties"]), name


@needs_helm
def test_no_pod_is_root_or_writes_its_root_or_keeps_capabilities(rendered: list[Document]) -> None:
    for pod in pods(rendered):
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
    airflow = yaml.safe_load((CHART / "values.yaml").read_text())["airflow"]
    assert airflow["securityContexts"]["pod"]["runAsNonRoot"] is True
    # of all that share the home: a folder that the group may enter would be refused as not private
    (lake,) = (document["spec"]["template"]["spec"] for document in rendered if document["kind"] == "StatefulSet")
    assert airflow["securityContexts"]["pod"] == lake["securityContext"]
    assert airflow["securityContexts"]["containers"]["capabilities"] == {"drop": ["ALL"]}


@needs_helm
def test_the_lake_server_is_probed_and_has_limits_and_time_to_end(rendered: list[Document]) -> None:
    pod = one(rendered, "StatefulSet", "tidemark-lake")["spec"]["template"]["spec"]
    (lake,) = pod["containers"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(lake)
    assert {"requests", "limits"} <= set(lake["resources"])
    assert pod["terminationGracePeriodSeconds"] >= control.DOWN_TIMEOUT_S
    command = [str(TIDEMARK), *lake["args"], "--help"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@needs_helm
def test_secrets_exist_before_the_chart(rendered: list[Document]) -> None:
    assert "Secret" not in {document["kind"] for document in rendered}
    names = set(re.findall(r"tidemark-(?:settings|tls|store|airflow-database)", json.dumps(rendered)))
    assert names == {"tidemark-settings", "tidemark-tls", "tidemark-store"}
    listed = (CHART / "values.yaml").read_text()
    for file in re.findall(r"(?<![\w])tidemark_(\w+)", listed):
        assert file in IN_SECRET_FILES
    # neither a key nor a URL with a password is in what anybody may read who may read the pods
    plain = json.dumps([one(rendered, "ConfigMap", "tidemark"), one(rendered, "StatefulSet", "tidemark-lake")])
    assert "TIDEMARK_METASTORE_URL" not in plain and 'AWS_SECRET_ACCESS_KEY": ' not in plain


@needs_helm
def test_nobody_may_connect_to_spark_connect(rendered: list[Document]) -> None:
    policy = one(rendered, "NetworkPolicy", "tidemark-lake")["spec"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == {10000, 7078, 7079}
    assert 15002 not in {port["port"] for port in one(rendered, "Service", "tidemark-lake")["spec"]["ports"]}


@needs_helm
def test_the_settings_are_those_that_a_cluster_requires(rendered: list[Document]) -> None:
    plain = one(rendered, "ConfigMap", "tidemark")["data"]
    (lake,) = one(rendered, "StatefulSet", "tidemark-lake")["spec"]["template"]["spec"]["containers"]
    spark = {entry["name"]: entry["value"] for entry in lake["env"]}["TIDEMARK_SPARK_CONF"]
    given = {name.removeprefix("TIDEMARK_").lower(): value for name, value in plain.items() if "TIDEMARK_" in name}
    assert set(given) <= set(Settings.model_fields)
    assert set(REQUIRED["cluster"]) <= {*given, "metastore_url", "airflow_database_url"}
    given.pop("secrets")  # a folder that is not here
    settings = Settings(**{**given, "home": CHART / "none", "spark_conf": json.loads(spark)})
    assert settings.spark_conf["spark.kubernetes.namespace"] == "data"
    # the driver's address is the service's name, and its ports are those of the service
    ports = {each["name"]: str(each["port"]) for each in one(rendered, "Service", "tidemark-lake")["spec"]["ports"]}
    assert settings.driver_host == one(rendered, "Service", "tidemark-lake")["metadata"]["name"]
    assert settings.spark_conf["spark.driver.port"] == ports["driver"]
    assert settings.spark_conf["spark.driver.blockManager.port"] == ports["blocks"]


@needs_helm
def test_spark_gets_no_key_of_the_driver(rendered: list[Document], tmp_path: Path) -> None:
    plain = one(rendered, "ConfigMap", "tidemark")["data"]
    assert plain["TIDEMARK_EXECUTOR_KEYS"] == "machine"
    settings = Settings(home=tmp_path, master=plain["TIDEMARK_MASTER"], driver_host="x", executor_keys="machine")
    assert not [name for name in executors_conf(settings, []) if "SECRET_ACCESS_KEY" in name]


def test_airflows_processes_run_by_the_commands_that_they_have() -> None:
    airflow = yaml.safe_load((CHART / "values.yaml").read_text())["airflow"]
    parts = {name: airflow[name]["args"] for name in ("scheduler", "dagProcessor", "triggerer", "apiServer")}
    for args in (*parts.values(), airflow["migrateDatabaseJob"]["args"]):
        # the image's entry point is `tidemark`
        assert args[0] == "airflow"
        command = airflow_parts.airflow_command(tuple(args[1:]))
        assert command in {airflow_parts.airflow_command(arguments) for arguments in airflow_parts._ARGUMENTS.values()}


DRIVER = """
import sys
from pyspark import SparkConf, SparkContext
conf = SparkConf().setMaster(sys.argv[1]).setAppName("driver").setAll([
    ("spark.authenticate", "true"), ("spark.authenticate.secret", sys.argv[2]),
    ("spark.network.crypto.enabled", "true"), ("spark.driver.host", "127.0.0.1"), ("spark.ui.enabled", "false")])
context = SparkContext(conf=conf)
print("driver", context.getConf().get("spark.driver.port"), context.applicationId, flush=True)
print("sum", context.parallelize(range(1000), 3).sum(), flush=True)
context.stop()
"""


@needs_helm
@pytest.mark.server
@pytest.mark.long
def test_the_command_of_an_executors_pod_works_for_a_driver(rendered: list[Document], tmp_path: Path) -> None:
    """Of Kubernetes only the variables of the pod are here; the driver is one of a standalone master."""
    (container,) = executor_pod(rendered)["spec"]["containers"]
    argv = [word.replace("/opt/tidemark", str(CHECKOUT)) for word in [*container["command"], "executor"]]
    if shutil.which("tini") is None:
        argv = argv[2:]
    with standalone(tmp_path / "spark", workers=0) as cluster:
        environment = {
            "PATH": f"{TIDEMARK.parent}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "JAVA_HOME": str(java_path().resolve().parents[1]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        output = tmp_path / "driver.out"
        with output.open("wb") as out:
            driver = subprocess.Popen(
                [sys.executable, "-c", DRIVER, cluster.master, SECRET], env=environment, stdout=out
            )
        until(lambda: "driver" in output.read_text() or driver.poll() is not None, 120, "the driver did not start")
        _, port, application = output.read_text().split()[:3]
        of_pod = {
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1",
            "SPARK_EXECUTOR_MEMORY": "512m",
            "SPARK_APPLICATION_ID": application,
            "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
            "SPARK_EXECUTOR_POD_NAME": "executor-1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_JAVA_OPT_0": "-Dspark.authenticate=true",
            "SPARK_JAVA_OPT_1": "-Dspark.network.crypto.enabled=true",
            "_SPARK_AUTH_SECRET": SECRET,
            **{entry["name"]: entry["value"] for entry in container["env"]},
        }
        work = tmp_path / "work"
        work.mkdir()
        with (tmp_path / "executor.log").open("wb") as log:
            executor = subprocess.Popen(argv, env={**environment, **of_pod}, cwd=work, stdout=log, stderr=log)
        try:
            until(lambda: driver.poll() is not None or executor.poll() is not None, 180, "no task was done")
            assert "sum 499500" in output.read_text(), (tmp_path / "executor.log").read_text()
            # the executor ends with its driver
            assert (driver.wait(60), executor.wait(60)) == (0, 0)
        finally:
            for process in (executor, driver):
                process.kill()
