"""The network of each `model.decoder`."""

from xtts_pipeline.model.autoregressive.network import AutoregressiveNetwork
from xtts_pipeline.model.network import Network
from xtts_pipeline.model.parallel.network import ParallelNetwork

NETWORKS: dict[str, type[Network]] = {"autoregressive": AutoregressiveNetwork, "parallel": ParallelNetwork}
