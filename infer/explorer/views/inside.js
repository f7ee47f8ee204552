// The logit lens, and patching: one activation of another sentence, put into this one.

VIEWS.inside = {
  title: "Lens and patch",
  controls: {
    stack: { text: "lens into the", options: () => [["encoder", "encoder"], ["decoder", "decoder"]] },
    word: { text: "patch the word", options: () => now.ids.slice(0, -1).map((id, s) => [s, label(id)]) },
    other: { text: "as if it were", placeholder: () => nearest(now.ids[wordOf()]) },
  },
  draw(root) {
    const stack = at.stack === "encoder" ? "encoder" : "decoder";
    const lens = logitLens(model, now.trace, stack);
    const names = (stack === "encoder" ? now.ids : now.inputs).map(label);
    step(root, "1. Logit lens: what if this layer were the last?", "softmax(x E^T)", stack === "encoder"
      ? "For each subword of the source, the subword that its vector is most like."
      : "For each token read, the next one that a layer would predict.");
    grid(root, { name: `logit lens of the ${stack}`, rows: ["embedding", ...numbered(model.config.N).map(([n]) => `layer ${n + 1}`)],
      columns: names, values: lens.map(row => row.map(logits => largest(softmax(logits), 1)[0])),
      text: ([id, p]) => `${label(id).trim()} ${share(p)}`, heat: ([, p]) => p });
    drawPatches(root);
  },
};

const wordOf = () => chosenOf("word", now.ids.length - 1);

/* Returns the word whose embedding is most like that of a subword (their cosine). */
function nearest(id) {
  const { data: table } = model.tensors[model.config.tie_embeddings ? "embed" : "source_embed"];
  const d = model.config.d_model;
  const row = one => table.subarray(one * d, (one + 1) * d);
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  const words = COMPLETIONS.filter(word => model.tokenizer.encode(word).length === 1);
  const likeness = words.map(word => {
    const [one] = model.tokenizer.encode(word);
    return one === id ? -Infinity : dot(row(one), row(id)) / Math.sqrt(dot(row(one), row(one)));
  });
  return words[largest(likeness, 1)[0]?.[0]] ?? "";
}

function drawPatches(root) {
  const s = wordOf();
  const word = label(now.ids[s]).trim();
  const otherWord = at.other || nearest(now.ids[s]);
  const replaced = model.tokenizer.encode(otherWord);
  step(root, `2. Patching: where is “${word}” kept?`, "", `The model reads the sentence as it is, but one vector comes from the sentence with “${otherWord}”. `
    + "Where that changes the translation, the word is kept.");
  const wrong = replaced.length !== 1 ? `“${otherWord}” is ${replaced.length} subwords; choose a word that is one` : "";
  const otherIds = now.ids.map((id, place) => place === s ? replaced[0] : id);
  const output = wrong ? [] : [...translate(model, otherIds, now.options).hypotheses[0].ids, EOS];
  const t = output.findIndex((id, place) => id !== now.output[place]);
  if (t < 0) {
    make("p", wrong || `With “${otherWord}” the translation is the same: choose another word.`, root);
    return;
  }
  const inputs = now.inputs.slice(0, t + 1);
  const other = forward(model, otherIds, inputs, now.options).trace;
  const patched = (name, places) => {
    const patch = { [name]: Object.fromEntries(places.map(place => [place, other[name].rows[place]])) };
    const p = softmax(forward(model, now.ids, inputs, { ...now.options, patch }).logits[t]);
    return [p[now.output[t]], p[output[t]]];
  };
  const rest = now.ids.map((_, place) => place).filter(place => place !== s);
  const rows = [["nothing", patched("encoder/embedding", [])]];
  for (const [name, told] of [["encoder/embedding", "embedding"],
    ...numbered(model.config.N).map(([n]) => [`encoder/layer_${n}`, `encoder's layer ${n + 1}`])]) {
    rows.push([`${told}: ${word}`, patched(name, [s])], [`${told}: all but ${word}`, patched(name, rest)]);
  }
  for (const [n] of numbered(model.config.N)) {
    rows.push([`attention to the encoder, layer ${n + 1}: at this place`, patched(`${PATHS.cross(n)}`, [t])]);
  }
  grid(root, { name: "probabilities after each patch", rows: rows.map(([told]) => told),
    columns: [`p(${label(now.output[t]).trim()})`, `p(${label(output[t]).trim()})`], values: rows.map(([, p]) => p), text: share, heat: p => p });
}
