// The page: a sentence in, its subwords, its translation as it grows, and the attention behind it.

const data = JSON.parse(document.getElementById("data").textContent);
const model = openModel(data);
const chosen = opening();
const element = id => document.getElementById(id);
const thousandths = share => Math.round(1000 * share);
let latest = 0; // the number of the newest sentence: what older ones still compute is thrown away

/* Returns the probability, the rank and the best alternatives of each token, as viewer.js reads them. */
function choicesOf(logits, ids) {
  return ids.map((id, t) => {
    const probabilities = softmax(logits[t]);
    const best = largest(probabilities, 5).map(([token, p]) => [model.tokenizer.label(token), 1000 * p]);
    const rank = 1 + probabilities.filter(p => p > probabilities[id]).length;
    return { probability: 1000 * probabilities[id], rank, best };
  });
}

/* Returns what viewer.js draws of one kind of attention. */
function mapOf(trace, kind, queries, keys, choices) {
  const path = kind === "encoder" ? "encoder/layer_N/self_attention"
    : kind === "decoder" ? "decoder/layer_N/self_attention" : "decoder/layer_N/cross_attention";
  const weights = [...Array(model.config.N).keys()].map(n => {
    const activation = trace[`${path.replace("N", n)}/weights`];
    return [...Array(model.config.h).keys()].map(h =>
      activation.rows.map((_, t) => Array.from(head(activation, t, h), thousandths)));
  });
  return { title: data.titles[kind], queries, keys, weights, ...(choices ? { choices } : {}) };
}

/* Draws all that the page says of a sentence and its finished search. */
function draw(ids, { hypotheses, steps }) {
  const output = [...hypotheses[0].ids, EOS];
  const inputs = [BOS, ...output.slice(0, -1)];
  const { trace, logits } = forward(model, ids, inputs);
  const choices = choicesOf(logits, output);
  const label = model.tokenizer.label;
  const sources = ids.map(label);
  const maps = {
    encoder: mapOf(trace, "encoder", sources, sources),
    decoder: mapOf(trace, "decoder", output.map(label), inputs.map(label), choices),
    cross: mapOf(trace, "cross", output.map(label), sources, choices),
  };
  const root = element("attention");
  root.replaceChildren();
  const redraw = viewer(root, maps, chosen, () => redraw());
  redraw();
  const tree = element("tree");
  tree.replaceChildren();
  beamTree(tree, { steps });
}

/* Shows the translation as far as it goes: the most probable hypothesis of a step. */
function grow(text) {
  element("translation").textContent = text;
}

async function translateSentence() {
  const own = ++latest;
  const ids = sourceIds(model, element("source").value);
  element("subwords").replaceChildren();
  for (const id of ids.slice(0, -1)) make("span", model.tokenizer.label(id), element("subwords"));
  if (ids.length === 1) {
    grow("");
    for (const id of ["attention", "tree"]) element(id).replaceChildren();
    return;
  }
  const running = search(model, ids);
  for (;;) {
    const { done, value } = running.next();
    if (own !== latest) return;
    if (done) {
      grow(value.hypotheses[0].text);
      draw(ids, value);
      document.body.dataset.translated = own;
      return;
    }
    if (value.alive.length) grow(model.tokenizer.decode(value.alive[0].ids));
    await new Promise(resolve => setTimeout(resolve)); // the page stays live
  }
}

element("about").textContent = `Every number on this page is computed here, with the parameters of step ${data.step}.`;
element("legend").textContent = BEAM_LEGEND;
element("source").value = data.source;
element("source").addEventListener("input", translateSentence);
translateSentence();
