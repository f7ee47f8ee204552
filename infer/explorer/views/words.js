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
  draw(root) {
    drawRoles(root);
    const { trace, ids, output, inputs, choices } = now;
    const sources = ids.map(label);
    const outputs = output.map(label);
    maps.encoder = mapOf(trace, "encoder", sources, sources);
    maps.decoder = mapOf(trace, "decoder", outputs, inputs.map(label), choices);
    maps.cross = mapOf(trace, "cross", outputs, sources, choices);
    redraw();
  },
};

/* Draws the heads that have a role, if they were measured: each is a button that leads to its map. */
function drawRoles(root) {
  if (!roles().length) return;
  step(root, "What they were measured to do", "", `How often a head's largest weight is on the right word, with the 95 % interval, `
    + `on test sentences (${data.measured.scored_on}). Listed are heads that beat chance, every fixed distance and the untrained model. Choose one to see it below.`);
  const list = make("p", undefined, root, "tokens");
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", "heads with a role");
  for (const role of roles()) {
    const { kind, layer, head, relation, accuracy, low, high } = role;
    const button = make("button", `${relation} ${share(accuracy)}`, list);
    make("small", `${data.titles[kind]} ${layer}.${head} (${share(low)} to ${share(high)})`, button);
    button.dataset.key = relation + kind;
    button.setAttribute("aria-pressed", at.head !== "mean" && rolesOf(kindOf(), layerOf(), headOf()).includes(role));
    button.addEventListener("click", () => go({ kind, layer: String(layer - 1), head: String(head - 1) }));
  }
}

/* Returns what viewer.js draws of one kind of attention. */
function mapOf(trace, kind, queries, keys, choices) {
  const weights = numbered(model.config.N).map(([n]) => {
    const activation = trace[`${PATHS[kind](n)}/weights`];
    return numbered(model.config.h).map(([h]) =>
      activation.rows.map((_, t) => Array.from(head(activation, t, h), p => Math.round(1000 * p))));
  });
  return { title: data.titles[kind], queries, keys, weights, ...(choices ? { choices } : {}) };
}
