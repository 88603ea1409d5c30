#!/bin/sh
# Measures every CPU figure of README beside llama.cpp: about twelve minutes on two quiet cores. `check` instead of `measure`
# computes the perplexities alone, which need no quiet; `measure` then takes them from there.
#
#   MODELS=folder LLAMA=llama/bin TEXT=text.txt benches/all_evidence.sh check|measure [series ...]
set -eu
cd "$(dirname "$0")/.."
what=$1
shift
kept=${CHECKS:-target/checks}
mkdir -p "$kept"

# series, file, label, parts, other options
compare() {
    series=$1 file=$2 label=$3 parts=$4
    shift 4
    name=$(echo "$series" | sed 's,/,-,g')
    [ "$what" = check ] && parts=check
    benches/compare_llama_cpp.py --model "$MODELS/$file" --name "$series" --label "$label" --llama "$LLAMA" --text "$TEXT" --plancher "${PLANCHER:-target/release/plancher}" \
        --windows 8 --pairs "${PAIRS:-7}" --check "$kept/$name.json" --only "$parts" --out "evidence/cpu-$name.json" "$@"
}

for series in ${*:-qwen smollm2 bf16 q8_0 qwen_q8_0}; do
    case $series in
    qwen) compare qwen2.5-coder-0.5b/q4_k_m qwen2.5-coder-0.5b-instruct-q4_k_m.gguf "Qwen2.5-Coder-0.5B Q4_K_M" prefill,decode,memory,depth ;;
    smollm2) compare smollm2-135m/q4_1 SmolLM2-135M-Instruct.Q4_1.gguf "SmolLM2-135M Q4_1" decode,prefill,memory,depth ;;
    bf16) compare smollm2-135m/bf16 smollm2-bf16.gguf "SmolLM2-135M BF16" decode --fraction-bar 0.85 --decode-bar 0 ;;
    q8_0) compare smollm2-135m/q8_0 smollm2-q8_0.gguf "SmolLM2-135M Q8_0" decode --fraction-bar 0.85 --decode-bar 0 ;;
    qwen_q8_0) compare qwen2.5-coder-0.5b/q8_0 qwen2.5-coder-0.5b-q8_0.gguf "Qwen2.5-Coder-0.5B Q8_0" decode --fraction-bar 0.85 --decode-bar 0 ;;
    *) echo "no series \`$series\`: qwen, smollm2, bf16, q8_0 or qwen_q8_0" >&2; exit 2 ;;
    esac
done
