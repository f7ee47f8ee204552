// The translation, subword by subword: how probable each is, and what else the model thought of.

function drawAlternatives(root) {
  const { output, choices } = now;
  grid(root, {
    name: "each subword's probability, and the five most probable at its place",
    rows: output.map(label), columns: ["p", "1st", "2nd", "3rd", "4th", "5th"],
    values: output.map((id, t) => [["", choices[t].probability], ...choices[t].best]),
    text: ([subword, p]) => `${subword.trim()} ${share(p / 1000)}`, heat: ([, p]) => p / 1000,
  });
}

VIEWS.words = {
  title: "Subword by subword",
  draw(root) {
    step(root, "What else it thought of", "p = softmax(logits)",
      "A row for each subword of the translation: its probability, and the five most probable at its place. "
      + "The decoder has then read the source and the rows above.");
    drawAlternatives(root);
  },
};

// All heads: the viewer, made once and drawn again for each sentence.
const maps = {};
const viewed = { get layer() { return layerOf(); }, set layer(n) { at.layer = String(n); },
  get head() { return at.head === "mean" ? "mean" : headOf(); }, set head(h) { at.head = String(h); },
  get kind() { return kindOf(); }, set kind(kind) { at.kind = kind; } };
const redraw = viewer(element("attention"), maps, viewed, () => go({}));

VIEWS.heads = {
  title: "All heads",
  draw() {
    const { trace, ids, output, inputs, choices } = now;
    const sources = ids.map(label);
    const outputs = output.map(label);
    maps.encoder = mapOf(trace, "encoder", sources, sources);
    maps.decoder = mapOf(trace, "decoder", outputs, inputs.map(label), choices);
    maps.cross = mapOf(trace, "cross", outputs, sources, choices);
    redraw();
  },
};

/* Returns what viewer.js draws of one kind of attention. */
function mapOf(trace, kind, queries, keys, choices) {
  const weights = numbered(model.config.N).map(([n]) => {
    const activation = trace[`${PATHS[kind](n)}/weights`];
    return numbered(model.config.h).map(([h]) =>
      activation.rows.map((_, t) => Array.from(head(activation, t, h), p => Math.round(1000 * p))));
  });
  return { title: data.titles[kind], queries, keys, weights, ...(choices ? { choices } : {}) };
}
