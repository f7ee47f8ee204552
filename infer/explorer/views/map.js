// Figure 1 of the paper, drawn from the config: each box has its equation, its shapes, and its numbers.

/* Returns the boxes of a stack from its input to its output: {name, text, equation, parts, kind, layer}. */
function boxesOf(stack) {
  const { N, norm } = model.config;
  const boxes = [{ name: `${stack}/embedding`, text: stack === "encoder" ? "Input embedding + positions"
    : "Output embedding (shifted right) + positions", equation: model.config.scale_embeddings
    ? "x = E[token] √d + PE(pos)" : "x = E[token] + PE(pos)" }];
  for (let n = 0; n < N; n++) {
    const path = `${stack}/layer_${n}`;
    const sublayers = [["self_attention", stack === "encoder" ? "Multi-head attention" : "Masked multi-head attention"],
      ...stack === "decoder" ? [["cross_attention", "Multi-head attention to the encoder"]] : [],
      ["feed_forward", "Feed forward"]];
    sublayers.forEach(([name, text], i) => {
      const kind = name === "cross_attention" ? "cross" : stack;
      const sublayer = name === "feed_forward"
        ? { equation: "FFN(x) = max(0, x W_1 + b_1) W_2 + b_2", parts: ["hidden", ""] }
        : { equation: "softmax(Q K^T / √d_k) V in every head, then W^O", kind,
          parts: ["q", "k", "v", "scores", "weights", "heads", ""] };
      const normed = { name: `${path}/norm_${i + 1}`, layer: n,
        ...norm === "pre" ? { text: "Norm", equation: "LayerNorm(x)" } : { text: "Add & norm", equation: "LayerNorm(x + Sublayer(x))" } };
      const added = { name: `${path}/sum_${i + 1}`, text: "Add", equation: "x + Sublayer(LayerNorm(x))", layer: n };
      const box = { name: `${path}/${name}`, text, layer: n, ...sublayer };
      boxes.push(...norm === "pre" ? [normed, box, added] : [box, normed]);
    });
  }
  if (norm === "pre") boxes.push({ name: `${stack}/final_norm`, text: "Norm", equation: "LayerNorm(x)" });
  if (stack === "decoder") {
    boxes.push({ name: "logits", text: "Linear", equation: "logits = x E^T" },
      { name: "softmax", text: "Softmax", equation: "p(token) = exp(logit) / Σ exp(logit)" });
  }
  return boxes;
}

function drawStack(root, stack, chosen) {
  const column = make("div", undefined, root, "stack");
  make("p", stack === "encoder" ? "the source" : "the translation so far", column, "caption");
  let layer;
  for (const box of boxesOf(stack)) {
    if (box.layer !== layer?.number) {
      layer = box.layer === undefined ? undefined : { number: box.layer, root: make("div", undefined, column, "layer") };
      if (layer) make("span", `layer ${box.layer + 1} of ${model.config.N}`, layer.root, "caption");
    }
    const button = make("button", box.text, layer?.root ?? column, box.kind === "cross" ? "cross" : "");
    button.type = "button";
    button.dataset.key = box.name;
    button.setAttribute("aria-pressed", box.name === chosen.name);
    button.addEventListener("click", () => {
      go({ box: box.name, part: "" });
      document.querySelector(".panel").scrollIntoView({ block: "nearest" });
    });
  }
  make("p", stack === "encoder" ? "keys and values for the decoder →" : "the next subword", column, "caption");
}

VIEWS.map = {
  title: "The whole model",
  draw(root) {
    const boxes = [...boxesOf("encoder"), ...boxesOf("decoder")];
    const box = boxes.find(({ name }) => name === at.box) ?? boxes[0];
    make("p", "Figure 1 of the paper, from the bottom to the top, as large as this model is. Choose a box.", root, "caption");
    const figure = make("div", undefined, root, "figure");
    for (const stack of ["encoder", "decoder"]) drawStack(figure, stack, box);
    const panel = make("section", undefined, root, "panel");
    panel.setAttribute("aria-label", box.text);
    const where = box.layer === undefined ? "" : `, ${box.name.split("/")[0]}, layer ${box.layer + 1}`;
    step(panel, box.text + where, box.equation, "");
    if (box.kind) {
      const link = make("a", "One of its heads, step by step", make("p", undefined, panel));
      link.href = "#" + new URLSearchParams({ ...at, view: "head", kind: box.kind, layer: box.layer });
    }
    if (box.name === "softmax") {
      drawAlternatives(panel);
      return;
    }
    const parts = box.parts ?? [""];
    const part = parts.includes(at.part) ? at.part : "";
    const names = make("p", undefined, panel, "tokens");
    for (const one of parts.length > 1 ? parts : []) {
      const button = make("button", one || "output", names);
      button.dataset.key = `part ${one}`;
      button.setAttribute("aria-pressed", one === part);
      button.addEventListener("click", () => go({ part: one }));
    }
    drawActivation(panel, part ? `${box.name}/${part}` : box.name);
  },
};

/* Draws an activation: a row a position, and what is in each column. */
function drawActivation(root, name) {
  const { shape, rows } = now.trace[name];
  const isSource = name.startsWith("encoder") || /cross_attention\/[kv]$/.test(name);
  const keys = name.startsWith("encoder") || name.includes("cross_attention") ? now.ids : now.inputs;
  const isOfKeys = /(scores|weights)$/.test(name);
  const inHead = (h, i) => `h${h + 1} ${isOfKeys ? label(keys[i]).trim() : i + 1}`;
  const columns = name === "logits" ? model.tokenizer.pieces.map((_, id) => label(id))
    : shape.length === 3 ? numbered(shape[1]).flatMap(([h]) => numbered(shape[2]).map(([i]) => inHead(h, i)))
      : numbered(shape[1]).map(([i]) => String(i + 1));
  const said = shape.length === 3 ? `${shape[0]} positions × ${shape[1]} heads × ${shape[2]} ${isOfKeys ? "keys" : "numbers"}`
    : `${shape[0]} positions × ${shape[1]} numbers`;
  make("p", said, root, "caption shape");
  grid(root, { name: `${name}, ${said}`, rows: (isSource ? now.ids : now.inputs).map(label), columns, values: rows });
}
