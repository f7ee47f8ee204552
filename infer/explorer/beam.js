// Beam search, step by step, and the translations that it found.

function drawBeam() {
  const root = emptied("beam");
  make("h2", `Beam search: ${now.options.beam} at a time`, root);
  make("p.say", "At each step the search keeps the most probable beginnings: the best in colour, others that reached the "
    + "end in black, those that fell behind in grey.", root);
  slider(root, "beam", "beam", 1, 8);
  slider(root, "alpha", "α, of the length penalty", 0, 2, 0.1);
  beamTree(make("div", undefined, root), now);
  const list = make("ol.ends", undefined, root);
  for (const { text, log_prob, score } of now.hypotheses) {
    const line = make("li.key", undefined, list);
    writeMarked(line, text, now.text);
    make("span", share(Math.exp(log_prob)), line);
    make("span", `score ${short(score)}`, line);
  }
  const penalty = data.decoding.length_penalty === "power" ? "length^α" : "((5 + length) / 6)^α";
  make("p.key", `score = log p / ${penalty}: with α = 0 short translations win.`, root);
}
