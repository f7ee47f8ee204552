// The card under the figure: of a target word, how sure it is, what else could stand there, and what it looks at; of a
// source word, who looks at it, and where the model keeps it.

let lensTimer = 0;

function drawCard() {
  const root = element("card");
  const { t, s } = lookedAt();
  if (figure && !figure.g.isNarrow) {
    root.style.gridTemplateColumns = `${figure.g.from - 40}px ${figure.g.to - figure.g.from}px minmax(0, 1fr)`;
  } else root.style.gridTemplateColumns = "";
  redrawn(root, () => s === undefined ? drawTarget(root, t) : drawSource(root, s));
}

const whichHead = () => `layer ${layerOf() + 1}, ${at.head === "mean" ? "mean of the heads" : `head ${headIn(CROSS(layerOf())) + 1}`}`;

function column(root, text) {
  const one = make("div", undefined, root);
  make("p", text, one, "key");
  return one;
}

function drawTarget(root, t) {
  const n = t ?? now.leastSure;
  const { p, rank, best } = now.choices[n];
  const id = now.output[n];
  const first = column(root, t === undefined ? "Where it was least sure"
    : at.pin === String(t) ? "Pinned; Esc lets go" : `Word ${n + 1} of ${now.output.length}`);
  const title = make("h3", id === EOS ? "end of sentence" : wordOf(id), first);
  make("span", share(p), title, "own");
  const lens = make("p", "\u00a0", first, "key lens");
  clearTimeout(lensTimer);
  const sentence = now;
  // Later, so that nothing is computed while the pointer runs over words; by then another sentence may be there, or none.
  lensTimer = setTimeout(() => { if (now === sentence) lens.textContent = earlier(n); }, now.lens[n] ? 0 : 60);
  const second = column(root, `What could stand here${rank > 1 ? ` (the search took number ${rank})` : ""}`);
  bars(second, best.map(([other, q]) => [wordOf(other), q, other === id]), "");
  const third = column(root, `What it looks at: ${whichHead()}`);
  const weights = figure.flow[n];
  bars(third, largest(weights, 5).map(([place, weight]) => [wordOf(now.ids[place]), weight]), "cross");
}

/* Returns what the layers before the last would say at a place, if each were the last. */
function earlier(t) {
  now.lens[t] ??= lensAt(t);
  const [, first] = now.lens[t];
  const agreed = now.lens[t].findLastIndex(([id]) => id !== now.output[t]) + 1;
  const said = first[0] === now.output[t] ? `Layer 1 alone would say it too (${share(first[1])}).`
    : `Layer 1 alone would say “${wordOf(first[0])}” (${share(first[1])}).`;
  const { N } = data.config;
  return N > 2 && agreed > 1 && agreed <= N ? `${said} From layer ${agreed} on it is “${wordOf(now.output[t])}”.` : said;
}

/* Returns what the embedding and each layer of the decoder would predict at one place, with its probability. */
function lensAt(t) {
  const rows = name => ({ rows: [now.trace[name].rows[t]] });
  const names = ["decoder/embedding", ...range(model.config.N).map(n => `decoder/layer_${n}`)];
  const trace = Object.fromEntries(names.map(name => [name, rows(name)]));
  return logitLens(model, trace, "decoder").map(([logits]) => largest(softmax(logits), 1)[0]);
}

// A source word

function drawSource(root, s) {
  const id = now.ids[s];
  const isPinned = at.word === String(s);
  const first = column(root, isPinned ? "Pinned; Esc lets go" : `${SOURCE} word ${s + 1} of ${now.ids.length}`);
  make("h3", id === EOS ? "end of sentence" : wordOf(id), first);
  const second = column(root, `Who looks at it: ${whichHead()}`);
  const weights = figure.flow.map(row => row[s]);
  bars(second, largest(weights, 5).map(([t, weight]) => [wordOf(now.output[t]), weight]), "cross");
  const third = column(root, "Where does the model keep this word?");
  if (id === EOS) { make("p", "It only says where the sentence ends.", third, "key"); return; }
  if (!isPinned) { make("p", "Click the word, or press Enter on it: one vector of another sentence is put into this one.", third, "key"); return; }
  drawPatches(third, s);
}

/* Returns the word whose embedding is most like a subword's (their cosine). */
function nearest(id) {
  const { data: table } = model.tensors[model.config.tables[0]];
  const d = model.config.d_model;
  const row = one => table.subarray(model.tokenizer.fromSource(one) * d, (model.tokenizer.fromSource(one) + 1) * d);
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  const words = COMPLETIONS.filter(word => model.tokenizer.encode(word).length === 1);
  const likeness = words.map(word => {
    const [one] = model.tokenizer.encode(word);
    return one === id ? -Infinity : dot(row(one), row(id)) / Math.sqrt(dot(row(one), row(one)));
  });
  return words[largest(likeness, 1)[0]?.[0]] ?? "";
}

/* Draws what each vector of the sentence with another word does, if it is put into this one: activation patching. */
function drawPatches(root, s) {
  const word = wordOf(now.ids[s]);
  const other = at.other || (now.nearest[s] ??= nearest(now.ids[s]));
  const box = make("label", "One vector comes from the sentence with ", root, "key");
  const input = make("input", undefined, box);
  input.value = other;
  input.size = 10;
  input.dataset.key = "other";
  input.addEventListener("change", () => go({ other: input.value }));
  const replaced = model.tokenizer.encode(other);
  if (replaced.length !== 1) { make("p", `“${other}” is ${replaced.length} subwords; choose a word that is one.`, root, "key"); return; }
  const key = `${s} ${other}`;
  const found = now.patches[key] ??= patchesOf(s, replaced[0]);
  if (!found) { make("p", `With “${other}” the translation is the same: choose another word.`, root, "key"); return; }
  make("p", `How probable “${wordOf(found.instead)}” then is, where “${wordOf(found.written)}” stands. The word is kept where that is high.`, root, "key");
  bars(root, found.rows.map(([told, p]) => [told.replace("WORD", word), p[1]]), "patches");
}

/* Returns the first subword that another source word changes, and after each patch both subwords' probabilities. */
function patchesOf(s, id) {
  const otherIds = now.ids.map((one, place) => place === s ? id : one);
  const output = [...translate(model, otherIds, { ...now.options, nbest: 1 }).hypotheses[0].ids, EOS];
  const t = output.findIndex((one, place) => one !== now.output[place]);
  if (t < 0) return null;
  const inputs = now.inputs.slice(0, t + 1);
  const other = forward(model, otherIds, inputs, now.options).trace;
  const patched = (name, places) => {
    const patch = { [name]: Object.fromEntries(places.map(place => [place, other[name].rows[place]])) };
    const p = softmax(forward(model, now.ids, inputs, { ...now.options, patch }).logits[t]);
    return [p[now.output[t]], p[output[t]]];
  };
  const rest = range(now.ids.length).filter(place => place !== s);
  const rows = [["nothing", patched("encoder/embedding", [])]];
  for (const [name, told] of [["encoder/embedding", "embedding"], ...range(model.config.N).map(n => [`encoder/layer_${n}`, `layer ${n + 1}`])]) {
    rows.push([`${told}: WORD`, patched(name, [s])], [`${told}: all but WORD`, patched(name, rest)]);
  }
  for (const n of range(model.config.N)) rows.push([`cross-attention ${n + 1}: here`, patched(CROSS(n), [t])]);
  return { written: now.output[t], instead: output[t], rows };
}
