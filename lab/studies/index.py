"""Questions that the paper raises and its tables do not answer: a table and a figure each, made from finished runs."""

from lab.studies.bottleneck import study as bottleneck
from lab.studies.distance import study as distance
from lab.studies.extrapolation import study as extrapolation
from lab.studies.families import study as families
from lab.studies.g2p import study as g2p
from lab.studies.layers import study as layers
from lab.studies.mup import study as mup
from lab.studies.norms import study as norms
from lab.studies.optimisers import study as optimisers
from lab.studies.scaling import study as scaling
from lab.studies.scan import study as scan
from lab.studies.scan_length import study as scan_length
from lab.studies.scores import study as scores
from lab.studies.second import study as second

STUDIES = {
    "layers": layers,
    "extrapolation": extrapolation,
    "scan": scan,
    "scan_length": scan_length,
    "scaling": scaling,
    "families": families,
    "second": second,
    "bottleneck": bottleneck,
    "scores": scores,
    "distance": distance,
    "norms": norms,
    "mup": mup,
    "optimisers": optimisers,
    "g2p": g2p,
}
