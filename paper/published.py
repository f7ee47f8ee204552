"""Published numbers: the paper's Tables 1 to 4 and the times behind Table 2, and one of another paper on captions.

paper/ has no other published numbers.

Source: arXiv 1706.03762, latest version, and the proceedings of NeurIPS 2017 where they differ. The labels of Table 3's
rows are ours. BLEU and F1 are percentages, None where the paper has no number.
"""

from typing import NamedTuple


class Layer(NamedTuple):
    """A row of Table 1, for sequence length n, width d, kernel k and neighbourhood r."""

    layer: str
    complexity: str
    sequential: str
    path: str


class System(NamedTuple):
    """A row of Table 2: BLEU on newstest2014 and training operations, for English-German and English-French."""

    model: str
    bleu: dict[str, float]
    flops: dict[str, float]


class Time(NamedTuple):
    """How long the paper trained, and on what (section 5.2)."""

    hours: float
    devices: int
    device: str


class Ablation(NamedTuple):
    """A row of Table 3, with the blanks filled in from its base row.

    `steps` is thousands of updates, `parameters` millions; perplexity is of a subword and BLEU of newstest2013.
    """

    N: int
    d_model: int
    d_ff: int
    h: int
    d_k: int
    d_v: int
    P_drop: float
    eps_ls: float
    steps: int
    perplexity: float
    bleu: float
    parameters: int | None


class Parser(NamedTuple):
    """A row of Table 4: F1 on section 23 of the Wall Street Journal."""

    parser: str
    training: str
    f1: float


TABLE1 = (
    Layer("self-attention", "O(n^2 d)", "O(1)", "O(1)"),
    Layer("recurrent", "O(n d^2)", "O(n)", "O(n)"),
    Layer("convolutional", "O(k n d^2)", "O(1)", "O(log_k n)"),
    Layer("self-attention, restricted", "O(r n d)", "O(1)", "O(n/r)"),
)

TABLE2 = (
    System("ByteNet", {"en-de": 23.75}, {}),
    System("Deep-Att + PosUnk", {"en-fr": 39.2}, {"en-fr": 1.0e20}),
    System("GNMT + RL", {"en-de": 24.6, "en-fr": 39.92}, {"en-de": 2.3e19, "en-fr": 1.4e20}),
    System("ConvS2S", {"en-de": 25.16, "en-fr": 40.46}, {"en-de": 9.6e18, "en-fr": 1.5e20}),
    System("MoE", {"en-de": 26.03, "en-fr": 40.56}, {"en-de": 2.0e19, "en-fr": 1.2e20}),
    System("Deep-Att + PosUnk ensemble", {"en-fr": 40.4}, {"en-fr": 8.0e20}),
    System("GNMT + RL ensemble", {"en-de": 26.30, "en-fr": 41.16}, {"en-de": 1.8e20, "en-fr": 1.1e21}),
    System("ConvS2S ensemble", {"en-de": 26.36, "en-fr": 41.29}, {"en-de": 7.7e19, "en-fr": 1.2e21}),
    System("Transformer (base)", {"en-de": 27.3, "en-fr": 38.1}, {"en-de": 3.3e18, "en-fr": 3.3e18}),
    System("Transformer (big)", {"en-de": 28.4, "en-fr": 41.8}, {"en-de": 2.3e19, "en-fr": 2.3e19}),
)
BIG_EN_FR_IN_THE_PROCEEDINGS = 41.0
TIMES = {"base": Time(12.0, 8, "P100"), "big": Time(3.5 * 24, 8, "P100")}
SUSTAINED = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}  # operations/s that the paper assumes

TABLE3 = {
    "base": Ablation(6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 4.92, 25.8, 65),
    "A1": Ablation(6, 512, 2048, 1, 512, 512, 0.1, 0.1, 100, 5.29, 24.9, None),
    "A2": Ablation(6, 512, 2048, 4, 128, 128, 0.1, 0.1, 100, 5.00, 25.5, None),
    "A3": Ablation(6, 512, 2048, 16, 32, 32, 0.1, 0.1, 100, 4.91, 25.8, None),
    "A4": Ablation(6, 512, 2048, 32, 16, 16, 0.1, 0.1, 100, 5.01, 25.4, None),
    "B1": Ablation(6, 512, 2048, 8, 16, 64, 0.1, 0.1, 100, 5.16, 25.1, 58),
    "B2": Ablation(6, 512, 2048, 8, 32, 64, 0.1, 0.1, 100, 5.01, 25.4, 60),
    "C1": Ablation(2, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 6.11, 23.7, 36),
    "C2": Ablation(4, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 5.19, 25.3, 50),
    "C3": Ablation(8, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 4.88, 25.5, 80),
    "C4": Ablation(6, 256, 2048, 8, 32, 32, 0.1, 0.1, 100, 5.75, 24.5, 28),
    "C5": Ablation(6, 1024, 2048, 8, 128, 128, 0.1, 0.1, 100, 4.66, 26.0, 168),
    "C6": Ablation(6, 512, 1024, 8, 64, 64, 0.1, 0.1, 100, 5.12, 25.4, 53),
    "C7": Ablation(6, 512, 4096, 8, 64, 64, 0.1, 0.1, 100, 4.75, 26.2, 90),
    "D1": Ablation(6, 512, 2048, 8, 64, 64, 0.0, 0.1, 100, 5.77, 24.6, None),
    "D2": Ablation(6, 512, 2048, 8, 64, 64, 0.2, 0.1, 100, 4.95, 25.5, None),
    "D3": Ablation(6, 512, 2048, 8, 64, 64, 0.1, 0.0, 100, 4.67, 25.3, None),
    "D4": Ablation(6, 512, 2048, 8, 64, 64, 0.1, 0.2, 100, 5.47, 25.7, None),
    "E": Ablation(6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 4.92, 25.7, None),
    "big": Ablation(6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 300, 4.33, 26.4, 213),
}

# BLEU of lower-cased tokens, one run: Wu et al. 2021 (arXiv 2105.14462), the text-only "tiny" model, test_2016_flickr.
MULTI30K = 41.02

TABLE4 = (
    Parser("Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", 88.3),
    Parser("Petrov et al. (2006)", "WSJ only, discriminative", 90.4),
    Parser("Zhu et al. (2013)", "WSJ only, discriminative", 90.4),
    Parser("Dyer et al. (2016)", "WSJ only, discriminative", 91.7),
    Parser("Transformer (4 layers)", "WSJ only, discriminative", 91.3),
    Parser("Zhu et al. (2013)", "semi-supervised", 91.3),
    Parser("Huang & Harper (2009)", "semi-supervised", 91.3),
    Parser("McClosky et al. (2006)", "semi-supervised", 92.1),
    Parser("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Parser("Transformer (4 layers)", "semi-supervised", 92.7),
    Parser("Luong et al. (2015)", "multi-task", 93.0),
    Parser("Dyer et al. (2016)", "generative", 93.3),
)
