// The rows: what each flag of run_qa.py does here. Names and defaults are run_qa.py's (transformers 4.57);
// tests/trainer/test_options.py compares them.
#include "trireme/trainer/options/qa_options.h"

namespace trireme::trainer {
namespace {

// So that products of them fit into 64 bits, with any number of processes.
constexpr double kMostSamples = 1 << 20, kMostEpochs = 1 << 20, kMostMib = 1 << 20;

void model_flags(FlagTable& table, QaOptions& o) {
  table.group("Model");
  table.flag("model_name_or_path", &o.model_name_or_path,
             "A directory with config.json and model.safetensors, or a model's name on the hub.");
  table.flag("config_name", &o.config_name, "Another directory or name for config.json.");
  table.flag("tokenizer_name", &o.tokenizer_name, "Another directory or name for the tokenizer.");
  table.flag("cache_dir", &o.cache_dir, "Where downloads are kept, instead of the hub's cache below HF_HOME.");
  table.flag("model_revision", &o.model_revision, "Branch, tag or commit on the hub.");
  table.flag("token", &o.token, "Token for the hub, instead of HF_TOKEN.");
  table.refused("trust_remote_code", Kind::boolean,
                "this program has no Python to run a model's code with; use a model of a known family");
}

void data_flags(FlagTable& table, QaOptions& o) {
  table.group("Data");
  table.flag("dataset_name", &o.dataset_name, "A dataset's name on the hub, such as squad; or give files.");
  table.flag("dataset_config_name", &o.dataset_config_name, "The configuration of that dataset.");
  table.flag("train_file", &o.train_file, "Training questions, JSON in SQuAD's form, nested or flat.");
  table.flag("validation_file", &o.validation_file, "Questions for --do_eval.");
  table.flag("test_file", &o.test_file, "Questions for --do_predict.");
  table.flag("max_seq_length", &o.max_seq_length,
             "Tokens of question and context together; a longer context becomes several features.", at_least(8));
  table.flag("doc_stride", &o.doc_stride, "Tokens that two neighbouring features of one context share.", at_least(0));
  table.flag("max_train_samples", &o.max_train_samples, "Only the first N training questions.", at_least(1));
  table.flag("max_eval_samples", &o.max_eval_samples, "Only the first N questions of the evaluation.", at_least(1));
  table.flag("max_predict_samples", &o.max_predict_samples, "Only the first N questions of the prediction.", at_least(1));
  table.flag("preprocessing_num_workers", &o.preprocessing_num_workers,
             "Threads that tokenise; those that compute where it is not given.", at_least(1));
  table.moot("overwrite_cache", Kind::boolean,
             "tokenised questions are not kept on disk, so there is nothing old to overwrite");
  table.moot("pad_to_max_length", Kind::boolean, "tokens are packed end to end and padding is never computed");
  table.moot("group_by_length", Kind::boolean,
             "tokens are packed end to end, and batches are balanced by length across ranks anyway");
  table.moot("length_column_name", Kind::text, "lengths are those of the tokens");
  table.moot("train_sampling_strategy", Kind::text, "samples are drawn at random, balanced by length across ranks",
             one_of({"random", "group_by_length"}, "another order is not built in"));

  table.group("Answers");
  table.flag("version_2_with_negative", &o.version_2_with_negative, "Some questions have no answer (SQuAD 2.0).");
  table.flag("null_score_diff_threshold", &o.null_score_diff_threshold,
             "\"No answer\" wins if its score exceeds the best answer's by more than this.");
  table.flag("n_best_size", &o.n_best_size, "Candidates that are looked at and written for each question.", at_least(1));
  table.flag("max_answer_length", &o.max_answer_length, "Tokens of an answer, at most.", at_least(1));
}

void job_flags(FlagTable& table, QaOptions& o) {
  table.group("What to do");
  table.flag("do_train", &o.do_train, "Fine-tune on --train_file.");
  table.flag("do_eval", &o.do_eval, "Answer --validation_file and print exact match and F1.");
  table.flag("do_predict", &o.do_predict, "Answer --test_file.");
  table.flag("output_dir", &o.output_dir, "Where the model, checkpoints, answers and results go.");
  table.flag("overwrite_output_dir", &o.overwrite_output_dir,
             "Train into a directory that is not empty; checkpoints of an earlier run there, after where this one begins, are removed.");
  table.flag("resume_from_checkpoint", &o.resume_from_checkpoint,
             "Go on from this checkpoint; True: from the last one in --output_dir.");
}

void training_flags(FlagTable& table, QaOptions& o) {
  table.group("Training");
  table.flag("per_device_train_batch_size", &o.per_device_train_batch_size,
             "Features of a training batch, for each process.", between(1, kMostSamples));
  table.flag("per_device_eval_batch_size", &o.per_device_eval_batch_size,
             "Features of an evaluation batch, for each process.", between(1, kMostSamples));
  table.flag("gradient_accumulation_steps", &o.gradient_accumulation_steps, "Batches whose gradients make one step.",
             between(1, kMostSamples));
  table.flag("num_train_epochs", &o.num_train_epochs, "Times over the training set; need not be whole.",
             above_up_to(0, kMostEpochs));
  table.flag("max_steps", &o.max_steps, "If above 0: exactly so many steps, whatever --num_train_epochs says.",
             at_least(-1));
  table.flag("learning_rate", &o.learning_rate, "AdamW's learning rate after the warmup.", at_least(0));
  table.flag("lr_scheduler_type", &o.lr_scheduler_type, "How the learning rate falls.",
             one_of({"linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
                     "inverse_sqrt"}));
  table.flag("warmup_ratio", &o.warmup_ratio, "Share of all steps in which the learning rate rises from 0.", between(0, 1));
  table.flag("warmup_steps", &o.warmup_steps,
             "The same as a number of steps (or, below 1, a share); counts before --warmup_ratio.", steps_or_ratio());
  table.flag("weight_decay", &o.weight_decay, "Decay of all weights but biases and LayerNorms.", at_least(0));
  table.flag("adam_beta1", &o.adam_beta1, "AdamW's memory of gradients.", from_up_to_below(0, 1));
  table.flag("adam_beta2", &o.adam_beta2, "AdamW's memory of squared gradients.", from_up_to_below(0, 1));
  table.flag("adam_epsilon", &o.adam_epsilon, "AdamW's epsilon.", above(0));
  table.flag("max_grad_norm", &o.max_grad_norm, "Gradients are clipped to this norm; 0: not at all.", at_least(0));
  table.flag(
      "optim", &o.optim, "Both names are the fused AdamW of this program.",
      one_of({"adamw_torch_fused", "adamw_torch"}, "AdamW is the trainer's optimizer; trireme.optim has others for Python"));
  table.flag("dataloader_drop_last", &o.dataloader_drop_last, "Leave out an epoch's last batch if it is smaller.");
  table.flag("gradient_checkpointing", &o.gradient_checkpointing,
             "Compute layers again in the backward pass: less memory, more time.");
  table.flag("seed", &o.seed, "For the new head, dropout and the order of samples.", at_least(0));
  table.flag("data_seed", &o.data_seed, "For the order of samples alone.", at_least(0));
}

void machine_flags(FlagTable& table, QaOptions& o) {
  table.group("Machine");
  table.flag("bf16", &o.bf16, "Compute in bfloat16 where this CPU is faster that way, else in float32; never slower.");
  table.flag("bf16_full_eval", &o.bf16_full_eval, "The same for the evaluation.");
  table.flag("use_cpu", &o.use_cpu, "This program always computes on CPUs.");
  table.flag("no_cuda", &o.no_cuda, "The older name of --use_cpu.");
  table.flag("use_ipex", &o.use_ipex, "Trireme's own kernels do what it did, always.");
  table.flag("ddp_backend", &o.ddp_backend, "The backend between processes; it is ccl where nothing is said.",
             one_of({"ccl"}, "gloo, mpi and nccl are not built in: use ccl, or leave the flag out"));
  table.flag("ddp_timeout", &o.ddp_timeout, "Seconds that an operation between processes may take.", at_least(1));
  table.flag("ddp_bucket_cap_mb", &o.ddp_bucket_cap_mb, "Gradients travel in buckets of about so many MiB.",
             between(1, kMostMib));
}

void report_flags(FlagTable& table, QaOptions& o) {
  table.group("Reports and checkpoints");
  table.flag("logging_strategy", &o.logging_strategy, "When loss and learning rate are logged.",
             one_of({"no", "steps", "epoch"}));
  table.flag("logging_steps", &o.logging_steps, "Steps between two logs; below 1, a share of all steps.", steps_or_ratio());
  table.flag("logging_first_step", &o.logging_first_step, "Log the first step too.");
  table.flag("logging_dir", &o.logging_dir, "TensorBoard's files; OUTPUT_DIR/runs/DATE_HOST where it is not given.");
  table.flag("report_to", &o.report_to, "TensorBoard's event files, or nothing; all is tensorboard.",
             one_of({"tensorboard", "all", "none"}, "this program writes TensorBoard's event files and JSON, nothing else"));
  table.flag("save_strategy", &o.save_strategy, "When a checkpoint is written.",
             one_of({"no", "steps", "epoch"}, "best needs --load_best_model_at_end, which is not built in"));
  table.flag("save_steps", &o.save_steps, "Steps between two checkpoints; below 1, a share of all steps.", steps_or_ratio());
  table.flag("save_total_limit", &o.save_total_limit, "Keep only the last N checkpoints.", at_least(1));
  table.flag("save_only_model", &o.save_only_model,
             "Checkpoints without optimizer and random state: smaller, but training cannot go on from them.");
  table.flag("eval_strategy", &o.eval_strategy, "When to evaluate while training.", one_of({"no", "steps", "epoch"}))
      .aliases = {"evaluation_strategy"};
  table.flag("eval_steps", &o.eval_steps, "Steps between two evaluations; --logging_steps where it is not given.",
             steps_or_ratio());
  table.flag("disable_tqdm", &o.disable_tqdm, "Plain lines instead of a progress line that is redrawn, on a terminal too.");
  table.flag("log_level", &o.log_level, "From warning on, only what went wrong is said on stderr; the others are alike.",
             one_of({"passive", "detail", "debug", "info", "warning", "error", "critical"}));
}

void moot_flags(FlagTable& table) {
  table.group("Accepted, without effect");
  const std::string_view kLoader = "batches are made in this process, from tokens in memory";
  table.moot("dataloader_num_workers", Kind::integer, kLoader, at_least(0));
  table.moot("dataloader_prefetch_factor", Kind::integer, kLoader);
  table.moot("dataloader_persistent_workers", Kind::boolean, kLoader);
  table.moot("dataloader_pin_memory", Kind::boolean, "there is no device to copy to");
  table.moot("remove_unused_columns", Kind::boolean, "only what the model needs is ever made");
  table.moot("label_names", Kind::list, "the labels are the answer's first and last token");
  table.moot("prediction_loss_only", Kind::boolean, "an evaluation always scores answers");
  table.moot("eval_accumulation_steps", Kind::integer, "logits are in main memory from the beginning");
  table.moot("eval_do_concat_batches", Kind::boolean, "answers are made once, of the logits of all batches");
  table.moot("eval_use_gather_object", Kind::boolean, "logits are gathered as they are");
  table.moot("batch_eval_metrics", Kind::boolean, "answers are scored once, when all are made");
  table.moot("include_inputs_for_metrics", Kind::boolean, "the metrics are SQuAD's and read answers");
  table.moot("include_for_metrics", Kind::list, "the metrics are SQuAD's and read answers");
  table.moot("include_tokens_per_second", Kind::boolean, "tokens per second are always shown");
  table.moot("include_num_input_tokens_seen", Kind::text, "tokens are always counted").may_stand_alone = true;
  table.moot("average_tokens_across_devices", Kind::boolean, "an uneven batch is always weighted");
  table.moot("gradient_checkpointing_kwargs", Kind::text, "there is one kind of gradient checkpointing");
  table.moot("log_level_replica", Kind::text, "ranks other than 0 say only what went wrong");
  table.moot("log_on_each_node", Kind::boolean, "only rank 0 logs");
  table.moot("logging_nan_inf_filter", Kind::boolean, "a loss that is no number is shown as it is");
  table.moot("save_safetensors", Kind::boolean, "weights are always written as safetensors");
  table.moot("save_on_each_node", Kind::boolean, "rank 0 writes what all others need");
  table.moot("restore_callback_states_from_checkpoint", Kind::boolean, "there are no callbacks");
  table.moot("ignore_data_skip", Kind::boolean, "going to the right sample of an epoch costs nothing");
  table.moot("run_name", Kind::text, "only services for experiments show it");
  table.moot("project", Kind::text, "only services for experiments show it");
  table.moot("trackio_space_id", Kind::text, "only trackio reads it");
  table.moot("trackio_bucket_id", Kind::text, "only trackio reads it");
  table.moot("trackio_static_space_id", Kind::text, "only trackio reads it");
  table.moot("ddp_find_unused_parameters", Kind::boolean, "every parameter of the model takes part");
  table.moot("ddp_broadcast_buffers", Kind::boolean, "the models have no buffers that change");
  table.moot("ddp_static_graph", Kind::boolean, "the graph is always the same");
  table.moot("local_rank", Kind::integer, "the launcher's variables say who a process is");
  table.moot("skip_memory_metrics", Kind::boolean, "memory is not traced");
  table.moot("use_legacy_prediction_loop", Kind::boolean, "there is one evaluation loop");
  table.moot("use_cache", Kind::boolean, "an encoder has no cache of keys and values");
  table.moot("torch_empty_cache_steps", Kind::integer, "there is no device memory to empty");
  table.moot("past_index", Kind::integer, "the models have no past");
  table.moot("ray_scope", Kind::text, "there is no search over hyperparameters");
  table.moot("full_determinism", Kind::boolean,
             "a run repeats bit for bit with TRIREME_DETERMINISTIC=1 and the same number of ranks");
  table.moot("accelerator_config", Kind::text, "accelerate is not used");
  table.moot("dispatch_batches", Kind::boolean, "accelerate is not used");
}

void refused_flags(FlagTable& table) {
  table.group("Refused");
  const std::string_view kHalf =
      "float16 needs a GPU; on CPUs --bf16 saves time and memory where the CPU has instructions for it";
  table.refused("fp16", Kind::boolean, kHalf);
  table.refused("fp16_full_eval", Kind::boolean, kHalf);
  table.refused("fp16_opt_level", Kind::text, kHalf, {"O1"});
  table.refused("half_precision_backend", Kind::text,
                "there is one way to compute in bfloat16: leave the flag out and say --bf16", {"auto", "cpu_amp"});
  table.refused("fp16_backend", Kind::text, kHalf, {"auto"});
  table.refused("tf32", Kind::boolean,
                "TF32 is a format of GPUs; leave the flag out: matrix products are in float32, or in bfloat16 with --bf16");
  table.refused("use_mps_device", Kind::boolean, "this program computes on CPUs only; leave the flag out");
  table.refused("tpu_num_cores", Kind::integer,
                "this program computes on CPUs only; start processes with mpirun or torchrun");
  table.refused("tpu_metrics_debug", Kind::boolean, "this program computes on CPUs only; leave the flag out");
  table.refused("debug", Kind::text, "its tools are for TPUs and for Python; CCL_LOG_LEVEL=debug says more", {});
  const std::string_view kWhole =
      "every process holds the whole model; start more processes with mpirun or torchrun, and use --gradient_checkpointing "
      "where memory is short";
  table.refused("deepspeed", Kind::text, kWhole);
  table.refused("fsdp", Kind::text, kWhole);
  table.refused("fsdp_config", Kind::text, kWhole);
  table.refused("fsdp_min_num_params", Kind::integer, kWhole, {"0"});
  table.refused("fsdp_transformer_layer_cls_to_wrap", Kind::text, kWhole);
  table.refused("parallelism_config", Kind::text, kWhole);
  table.refused("mp_parameters", Kind::text, kWhole);
  const std::string_view kCompile = "nothing is compiled at run time, the kernels are built in; leave the flag out";
  table.refused("torch_compile", Kind::boolean, kCompile);
  table.refused("torch_compile_backend", Kind::text, kCompile);
  table.refused("torch_compile_mode", Kind::text, kCompile);
  table.refused("torchdynamo", Kind::text, kCompile);
  table.refused("jit_mode_eval", Kind::boolean, kCompile);
  table.refused("use_liger_kernel", Kind::boolean,
                "Liger's kernels are for GPUs; this program has its own; leave the flag out");
  table.refused("liger_kernel_config", Kind::text,
                "Liger's kernels are for GPUs; this program has its own; leave the flag out");
  const std::string_view kPush =
      "this program writes nothing to the hub; upload --output_dir with `hf upload` when it is done";
  table.refused("push_to_hub", Kind::boolean, kPush);
  table.refused("push_to_hub_model_id", Kind::text, kPush);
  table.refused("push_to_hub_organization", Kind::text, kPush);
  table.refused("push_to_hub_token", Kind::text, kPush);
  table.refused("hub_model_id", Kind::text, kPush);
  table.refused("hub_strategy", Kind::text, kPush, {"every_save"});
  table.refused("hub_token", Kind::text, kPush);
  table.refused("hub_private_repo", Kind::boolean, kPush);
  table.refused("hub_always_push", Kind::boolean, kPush);
  table.refused("hub_revision", Kind::text, kPush);
  const std::string_view kBest =
      "every evaluation is written to trainer_state.json: use --eval_strategy and --save_strategy with the same steps, "
      "without --save_total_limit, and pick a checkpoint";
  table.refused("load_best_model_at_end", Kind::boolean, kBest);
  table.refused("metric_for_best_model", Kind::text, kBest);
  table.refused("greater_is_better", Kind::boolean, kBest);
  table.refused("eval_on_start", Kind::boolean, "evaluate first with a run of its own: --do_eval without --do_train");
  table.refused("eval_delay", Kind::number, "evaluations begin with the first interval of --eval_strategy", {"0"});
  table.refused("lr_scheduler_kwargs", Kind::text,
                "the schedules have their usual parameters: one cosine half wave, power 1, one restart");
  table.refused("label_smoothing_factor", Kind::number,
                "the loss is the mean of the cross entropies of first and last token, without smoothing; leave the flag out",
                {"0", "0.0"});
  table.refused("neftune_noise_alpha", Kind::number, "noise on embeddings is not built in; leave the flag out");
  table.refused("adafactor", Kind::boolean, "AdamW is the trainer's optimizer; leave the flag out");
  table.refused("optim_args", Kind::text, "AdamW takes --adam_beta1, --adam_beta2, --adam_epsilon and --weight_decay");
  table.refused("optim_target_modules", Kind::text, "GaLore, for which this is, is not built in; leave the flag out");
  table.refused("auto_find_batch_size", Kind::boolean,
                "a CPU does not run out of memory so suddenly: give --per_device_train_batch_size");
  table.refused("per_gpu_train_batch_size", Kind::integer, "it is --per_device_train_batch_size today");
  table.refused("per_gpu_eval_batch_size", Kind::integer, "it is --per_device_eval_batch_size today");
  table.refused("enable_jit_checkpoint", Kind::boolean, "give --save_steps as often as work may be lost");
  table.refused("split_batches", Kind::boolean, "a batch size is that of a process: divide it by the number of processes");
}

}  // namespace

FlagTable qa_flags(QaOptions& options) {
  FlagTable table("trireme qa");
  model_flags(table, options);
  data_flags(table, options);
  job_flags(table, options);
  training_flags(table, options);
  machine_flags(table, options);
  report_flags(table, options);
  moot_flags(table);
  refused_flags(table);
  return table;
}

}  // namespace trireme::trainer
