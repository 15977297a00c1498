"""An answer outlives its decode worker with each feature on: not a byte of it changes, and the features were at work."""

import pytest

from tests.e2e import failover_test
from tests.e2e.cluster import WATCHFUL_ROUTER
from tests.e2e.failover_test import MAX_TOKENS, added_up, failovers, where_it_runs
from tests.e2e.held_stream import HeldStream

HISPARSE = {"hisparse": {"enabled": True, "host_to_device_ratio": 2}}
# What is on, and the metric of the decode workers that says so.
FEATURES = {
    "hisparse": ({"decode": HISPARSE}, "tandem_hisparse_misses_total"),
    "hisparse with drafts": ({"decode": HISPARSE, "num_drafts": 3}, "tandem_hisparse_misses_total"),
    "index cache": ({"shared": {"index_topk_pattern": "FS"}}, None),
    "two ranks": ({"decode": {"data_parallel_size": 2, "expert_parallel_size": 2}}, None),
    "no prefix cache": ({"prefill": {"prefix_cache": False}, "decode": {"prefix_cache": False}}, None),
    "by priority, computed again": ({"prefill": {"schedule_policy": "priority"}, "decode": {"retraction_host_tokens": 0}}, None),
}


@pytest.mark.parametrize("name", FEATURES)
def test_a_stream_outlives_its_decode_worker(fresh_cluster, name):
    options, metric = FEATURES[name]
    fields = {"max_tokens": MAX_TOKENS, "stream_options": {"include_usage": True}, **failover_test.SAMPLED}
    with fresh_cluster(num_decode=2, router=WATCHFUL_ROUTER, **options) as cluster:
        expected = added_up(HeldStream(cluster, **fields).begin().rest())
        cluster.wait_at_rest()
        stream = HeldStream(cluster, **fields).begin()
        cluster.is_expected_to_log_errors = True
        dead = where_it_runs(cluster.decodes)
        cluster.decodes[dead].kill()
        assert added_up(stream.rest()) == expected
        assert failovers(cluster, had_tokens="yes") == 1
        cluster.wait_at_rest()
        survivor = cluster.decodes[1 - dead]
        assert survivor.metric("tandem_replay_mismatches_total") == 0
        assert metric is None or survivor.metric(metric) > 0
