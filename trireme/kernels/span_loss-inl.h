// Softmax of one sequence's logits, per ISA level.

// logits[i] becomes exp(logits[i] - max).
Softmax exponentiate(float* logits, int64_t n) {
  Floats most = broadcast(logits[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = max(load(logits + i), most);
  float highest = max(most);
  for (; i < n; ++i) highest = logits[i] > highest ? logits[i] : highest;

  Floats total = {};
  for (i = 0; i < n; i += kLanes) {
    Floats value = zero_from(exp(load_up_to(logits + i, n - i) - highest), n - i);
    store_up_to(logits + i, value, n - i);
    total += value;
  }
  return {highest, sum(total)};
}
