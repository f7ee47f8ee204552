// The beam as a tree, step by step; alpha and the size of the beam are sliders, and the page's translation follows.

VIEWS.beam = {
  title: "The beam",
  controls: {
    beam: { text: "beam", range: () => [1, 8, 1] },
    alpha: { text: "alpha, of the length penalty", range: () => [0, 2, 0.1] },
    grown: { text: "steps of the search", range: () => [1, now.steps.length, 1], value: () => grownOf() + 1 },
  },
  draw(root) {
    const steps = now.steps.slice(0, grownOf() + 1);
    const isWhole = steps.length === now.steps.length;
    make("p", BEAM_LEGEND, root, "caption");
    beamTree(root, { steps: isWhole ? steps : steps.map(nodes => nodes.map(node => ({ ...node, rank: 0 }))) });
    const ended = steps.flatMap((nodes, n) => nodes.filter(node => node.score !== null).map(node => ({ ...node, length: n + 1 })));
    ended.sort((a, b) => b.score - a.score);
    const penalty = data.decoding.length_penalty === "power" ? "length^α" : "((5 + length) / 6)^α";
    step(root, "What has ended, the best first", `score = log p / ${penalty}`,
      "log p falls with every subword, so that without a penalty (alpha 0) short translations win.");
    if (ended.length) {
      grid(root, { name: "translations that have ended", rows: ended.map((_, place) => String(place + 1)),
        columns: ["score", "log p", "length", "translation"],
        values: ended.map(node => [node.score, node.log_prob, String(node.length), node.text || "(empty)"]),
        text: value => typeof value === "string" ? value : short(value), heat: () => 0 });
    } else make("p", "Nothing yet.", root);
  },
};

/* Returns the last step of the search that is drawn: at first all. */
const grownOf = () => at.grown === "" ? now.steps.length - 1 : chosenOf("grown", now.steps.length + 1) - 1;
