"""The cluster that the other tests run on is real, and used by this run of the tests alone."""

from __future__ import annotations


def test_the_cluster_has_three_nodes_and_takes_and_loses_another(ray_cluster):
    assert len(ray_cluster.nodes()) >= 3
    node = ray_cluster.add_node(num_cpus=1, resources={"short": 1})
    assert node in ray_cluster.nodes()
    ray_cluster.kill_node(node)
    assert node not in ray_cluster.nodes()
