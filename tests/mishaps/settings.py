"""Settings that cannot be used: in files, options, and grids."""

from __future__ import annotations

from tests.mishaps.mishap import Mishap, folder, text

DEEP = "a: " + "[" * 2000
FILES = [
    Mishap("no file", "run nothing.yaml", r"'nothing\.yaml' cannot be used: there is no such file"),
    Mishap("a folder", "run set.yaml", r"'set\.yaml' cannot be used: it is a folder; give a file", folder("set.yaml")),
    Mishap(
        "an image",
        "run image.yaml",
        r"'image\.yaml' is not YAML but something binary: .*0x89 in position 0",
        text("image.yaml", b"\x89PNG\r\n\x1a\n"),
    ),
    Mishap("NUL bytes", "run nul.yaml", r"'nul\.yaml' is not YAML: .*#x0000", text("nul.yaml", "rounds: 3\0")),
    Mishap("a list", "run list.yaml", r"'list\.yaml' must hold 'key: value' lines", text("list.yaml", "- rounds")),
    Mishap("a word", "run word.yaml", r"'word\.yaml' must hold 'key: value' lines", text("word.yaml", "rounds")),
    Mishap("a number as key", "run key.yaml", r"'key\.yaml' must hold 'key: value' lines", text("key.yaml", "3: 4")),
    Mishap(
        "a key twice",
        "run twice.yaml",
        r"'twice\.yaml' is not YAML: 'rounds' stands twice, again in line 3",
        text("twice.yaml", "rounds: 3\nlr: 0.1\nrounds: 30\n"),
    ),
    Mishap(
        "a key twice in a section",
        "run inner.yaml",
        r"'inner\.yaml' is not YAML: 'mu' stands twice, again in line 3",
        text("inner.yaml", "xfed:\n  mu: 0.3\n  mu: 0.6\n"),
    ),
    Mishap(
        "a command in YAML",
        "run tag.yaml",
        r"'tag\.yaml' is not YAML: could not determine a constructor for the tag .*os\.system",
        text("tag.yaml", 'xfed: !!python/object/apply:os.system ["touch hacked"]'),
    ),
    Mishap("an open bracket", "run open.yaml", r"'open\.yaml' is not YAML: .*flow mapping", text("open.yaml", "a: {b")),
    Mishap("a tab", "run tab.yaml", r"'tab\.yaml' is not YAML: .*'\\t'", text("tab.yaml", "xfed:\n\tmu: 1")),
    Mishap("an unknown alias", "run alias.yaml", r"undefined alias 'lost'", text("alias.yaml", "rounds: *lost")),
    Mishap(
        "very deep",
        "run deep.yaml",
        r"'deep\.yaml' is not YAML that can be used: it is nested",
        text("deep.yaml", DEEP),
    ),
    Mishap(
        "very long", "run long.yaml", r"'long\.yaml' is too long: 2,000,0\d\d char", text("long.yaml", "#" * 2000000)
    ),
    Mishap("bytes as a number", "run bytes.yaml", r"clients is b'GIF", text("bytes.yaml", "clients: !!binary R0lG")),
    Mishap(
        "a number as a method's settings",
        "run three.yaml",
        r"settings of xfed are 3; allowed: a section such as",
        text("three.yaml", "settings: {xfed: 3}"),
    ),
    Mishap(
        "settings of no form", "run flat.yaml", r"settings is 7; allowed: a section", text("flat.yaml", "settings: 7")
    ),
    Mishap(
        "a section of no form", "run sect.yaml", r"training is 5; allowed: a section", text("sect.yaml", "training: 5")
    ),
    Mishap(
        "a setting in the wrong section",
        "run wrong.yaml",
        r"unknown setting 'clients'|unknown setting 'training\.clients'",
        text("wrong.yaml", "training.clients: 5"),
    ),
]
OPTIONS = [
    Mishap("method", "run --method fedprr", r"unknown method 'fedprr' \(did you mean fedper\?\)"),
    Mishap("data set", "run --dataset digit", r"unknown dataset 'digit' \(did you mean digits\?\)"),
    Mishap("model", "run --model convnt", r"unknown model 'convnt' \(did you mean convnet\?\)"),
    Mishap("engine", "run --engine warp", r"unknown engine 'warp'; allowed: processes, ray, serial"),
    Mishap("a misspelt setting", "run --set roundz=3", r"unknown setting 'roundz' \(did you mean rounds\?\)"),
    Mishap(
        "a misspelt own setting", "run --set xfed.mew=3", r"unknown setting 'xfed\.mew' \(did you mean xfed\.mu\?\)"
    ),
    Mishap(
        "another method's setting",
        "run --set fedrep.mu=3",
        r"fedrep\.mu is a setting of the method 'fedrep', and the method is 'xfed'; allowed: settings of convnet,",
    ),
    Mishap("a section of nobody", "run --set nobody.mu=3", r"unknown section of settings 'nobody'"),
    Mishap("--set without =", "run --set rounds", r"--set 'rounds' is not of the form key=value"),
    Mishap("--set with half a list", "run --set rounds=[1", r"--set 'rounds=\[1' is not YAML"),
    Mishap("no rounds", "run --rounds 0", r"rounds is '0': input should be greater than 0"),
    Mishap("half a round", "run --rounds 1.5", r"rounds is '1\.5': input should be a valid integer"),
    Mishap("clients below 0", "run --clients -3", r"clients is '-3': input should be greater than 0"),
    Mishap("more clients than samples", "run --clients 900", r"900 clients.*at least 4.*overlapping"),
    Mishap("a share above 1", "run --sample 1.5", r"sample is '1\.5': more sampled clients than there are"),
    Mishap("a rate without end", "run --lr inf", r"lr is 'inf': input should be a finite number"),
    Mishap("no rate", "run --lr nan", r"lr is 'nan': input should be a finite number"),
    Mishap("momentum below 0", "run --momentum -1", r"momentum is '-1': input should be greater than or equal to 0"),
    Mishap("a seed below 0", "run --seed -1", r"seed is '-1': input should be greater than or equal to 0"),
    Mishap("no epoch", "run --epochs 0", r"epochs is '0': input should be greater than 0"),
    Mishap("no skew", "run --alpha 0", r"alpha is '0': input should be greater than 0"),
    Mishap("a device", "run --device quantum", r"device is 'quantum': torch cannot use this device here"),
    Mishap("no workers", "run --workers 0", r"workers is '0': input should be greater than 0"),
    Mishap("exits", "run --exits some", r"exits is 'some': input should be 'all' or 'last'"),
    Mishap("kernels", "run --kernels magic", r"kernels is 'magic': input should be 'standard'"),
    Mishap("tracker", "run --track neptune", r"track is 'neptune': input should be 'tensorboard', 'mlflow' or 'wandb'"),
    Mishap("replies without drop", "run --min-replies 2", r"min_replies goes with on_failure drop"),
    Mishap(
        "more replies than clients",
        "run --on-failure drop --min-replies 50",
        r"min_replies is 50, but a round has 10 clients; allowed: 1 to that",
    ),
    Mishap(
        "server momentum", "run --server-momentum 0.5", r"server_momentum goes with server_optimizer momentum or adam"
    ),
    Mishap("server rate", "run --server-lr 1", r"server_lr goes with server_optimizer sgd, momentum or adam"),
    Mishap(
        "exits that never wait",
        "run --method xfed-plus --xfed-plus.unselected idle",
        r"xfed-plus\.unselected goes with a schedule that lets exits wait; under 'fixed' all train",
    ),
    Mishap("distilling twice", "run --local-kd", r"local_kd is 'sum': method 'xfed' distils by itself"),
    Mishap("schedule", "run --xfed.schedule cubic", r"xfed\.schedule is 'cubic': input should be 'linear'"),
    Mishap("calibration", "run --calibration 1", r"calibration is '1': input should be less than 1"),
    Mishap("padding", "run --convnet.padding 0", r"padding 0.*8 × 8.*convnet\.padding=1"),
    Mishap("natural clients of digits", "run --partition-by natural", r"'digits' does not say which client a sample"),
    Mishap(
        "a partition as a table", "data partition --save p.csv", r"--save is 'p\.csv'; allowed: a file that ends in"
    ),
    Mishap("no partition file", "run --partition-by file", r"partition_by is 'file', but partition names none"),
    Mishap(
        "two ways of dealing",
        "run --partition-by iid --partition p.json",
        r"partition is 'p\.json', but partition_by is 'iid'",
    ),
    Mishap(
        "a partition larger than memory",
        "run --clients 1000000000 --partition-by overlapping",
        r"a partition of 1,000,000,000 clients with 100 samples each needs [\d,.]+ GB of memory, and .* are free",
    ),
    Mishap(
        "samples larger than the pools",
        "run --partition-by overlapping --samples-per-client 5000",
        r"samples_per_client is 5000, 3750 to train and 1250 to test, but the pools hold",
    ),
    Mishap(
        "a network larger than memory",
        "run --convnet.width 100000",
        r"model 'convnet' needs [\d,.]+ GB of memory, and [\d,.]+ GB are free; make it smaller",
    ),
    Mishap("a command", "runn", r"unknown command 'runn' \(did you mean run\?\); allowed: calibrate, case-study"),
    Mishap("an option", "run --roundz 3", r"No such option.*--roundz"),
    Mishap("an argument missing", "resume", r"Missing argument 'RUN'"),
    Mishap("a method twice", "compare --methods xfed,xfed", r"compare takes each method and each seed once"),
    Mishap("seeds", "compare --seeds 1,x", r"--seeds is '1,x': allowed are whole numbers"),
    Mishap(
        "a setting of nobody compared",
        "compare --methods fedper --set xfed.mu=0.7",
        r"setting 'xfed\.mu' is for method 'xfed', which is not among those compared",
    ),
    Mishap("a grid of no form", "sweep --vary rounds", r"--vary 'rounds' is not of the form key=value,value"),
    Mishap("a value twice in a grid", "sweep --vary lr=1,1", r"--vary 'lr=1,1': allowed: each setting once"),
    Mishap("seeds in a grid", "sweep --vary seed=1,2", r"--vary seed is not for settings; give --seeds"),
]
CASES = FILES + OPTIONS
