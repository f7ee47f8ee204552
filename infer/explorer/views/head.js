// One head of attention, from its query to what it adds, with every number on the way.

const HEAD_CONTROLS = {
  kind: { text: "attention", options: () => Object.keys(PATHS).map(kind => [kind, data.titles[kind]]) },
  layer: { text: "layer", options: () => numbered(model.config.N) },
  head: { text: "head", options: () => numbered(model.config.h, named) },
};

/* Returns a head's number, and of its roles that which it fulfils most often. */
function named(h) {
  const [best] = rolesOf(kindOf(), layerOf(), h).sort((a, b) => b.accuracy - a.accuracy);
  return best ? `${h + 1}: ${best.relation} ${share(best.accuracy)}` : h + 1;
}

/* Returns what a head's output becomes by its rows of W^O. */
function throughOutput(path, output, h) {
  const { d_model, d_v } = model.config;
  const wo = model.tensors[`${path}/wo`].data;
  return Float32Array.from({ length: d_model }, (_, j) =>
    output.reduce((sum, value, e) => sum + value * wo[(h * d_v + e) * d_model + j], 0));
}

/* Says what the division and the mask do to this query. */
function told(products, t) {
  const { d_k } = model.config;
  const last = kindOf() === "decoder" && !isOff("mask") ? t + 1 : products.length;
  const most = divisor => share(Math.max(...softmax(products.slice(0, last).map(product => product / divisor))));
  const division = `Divided by √${d_k}, the largest weight is ${most(Math.sqrt(d_k))}; not divided, ${most(1)}. `;
  if (kindOf() !== "decoder" || t + 1 === products.length) return division;
  const later = softmax(products.map(product => product / Math.sqrt(d_k))).slice(t + 1).reduce((sum, p) => sum + p, 0);
  return division + `Without the mask ${share(later)} of the weight would be on the ${products.length - t - 1} subwords `
    + "that come later. In training those are the answer.";
}

VIEWS.head = {
  title: "One head, step by step",
  controls: { ...HEAD_CONTROLS, query: { text: "query", options: () => sides().queries.map((name, t) => [t, name]) } },
  draw(root) {
    const { trace } = now;
    const { d_k, d_v, d_model, h: count, scale_attention } = model.config;
    const path = PATHS[kindOf()](layerOf());
    const h = headOf();
    const { queries, keys } = sides();
    const t = chosenOf("query", queries.length);
    const own = name => head(trace[`${path}/${name}`], t, h);
    const ofKeys = name => keys.map((_, s) => head(trace[`${path}/${name}`], s, h));
    const isDivided = scale_attention && !isOff("scale");
    const weights = own("weights");

    make("p", told(own("products"), t), root);
    step(root, "1. A query and the keys", "q = x W^Q,  k = x W^K",
      `“${queries[t].trim()}” asks with ${d_k} numbers, and each key answers with as many.`);
    grid(root, { name: "query and keys", rows: ["q", ...keys.map(key => "k " + key.trim())], columns: numbered(d_k).map(([n]) => n + 1),
      values: [own("q"), ...ofKeys("k")] });

    step(root, "2. How well they match: the weights", `softmax(q · k / √${d_k})`, "");
    const table = keys.map((_, s) => [own("products")[s], own("products")[s] / (isDivided ? Math.sqrt(d_k) : 1),
      own("scores")[s], weights[s]]);
    grid(root, { name: "from products to weights", rows: keys,
      columns: ["q · k", isDivided ? `/ √${d_k}` : "not divided", "mask", "softmax"], values: table.map(row => row.map((value, c) => [value, c])),
      text: ([value, c]) => c === 3 ? share(value) : short(value), heat: ([value, c]) => c === 3 ? value : 0 });
    step(root, "3. The values, weighted and added", "z = Σ weight · v", "Before each value stands its weight; the sum is what this head passes on.");
    const v = ofKeys("v");
    grid(root, { name: "values and their weighted sum", rows: [...keys.map((key, s) => `${share(weights[s])} v ${key.trim()}`), "sum"],
      columns: numbered(d_v).map(([n]) => n + 1), values: [...v, own("heads")] });

    step(root, "4. All heads, through the output matrix", "Concat(z_1, z_2, …) W^O = z_1 W_1^O + z_2 W_2^O + …",
      "What each head adds to this position, and their sum, which goes to Add & Norm.");
    const parts = numbered(count).map(([n]) => throughOutput(path, head(trace[`${path}/heads`], t, n), n));
    grid(root, { name: "what the heads add", rows: [...parts.map((_, n) => `head ${n + 1}${n === h ? " (this)" : ""}`), "output"],
      columns: numbered(d_model).map(([n]) => n + 1), values: [...parts, trace[path].rows[t]] });
  },
};
