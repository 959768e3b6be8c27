ROOMS = {
 'utils': ['randomness','files','parts>registry','evidence>statistics','terminal'],
 'economy': ['economy>ledger'],
 'tasks': ['families','language','quantities','patterns','tasks>streams','forms','curriculum'],
 'host.mechanisms': ['attention.'+m for m in 'operations mixers dynamics regression matrices frameworks programs hosting'.split()],
 'host': ['decoder','flops','adapters','engine','generation>sampling','fetch>downloads','gguf','host>model','pretraining'],
 'organelles': ['organelles>population','trees>packing','credit>learning_rules','plasticity>updates'],
 'assimilation': ['merging','sequential','uplift>off_policy','gates','exams>examiner','assimilation>pairing','trials'],
 'ecology': ['variation','demography>lifecycle','configuration>config','chronicle>record','diagnosis','controls','ecology','profiles','runs','state','checkpoints>checkpoint_files','sessions'],
 'evaluation': ['evaluation','forgetting','routing','asking>answering','export>peft_export','calibration'],
 'analysis': ['analysis>tables','theme','attempts>gate_charts','comparison>run_comparison','charts','inspection>weights','page>html','dashboard>run_dashboard','report>run_report','timeline>animation'],
 'lab': ['notebooks','live>live_charts','views','widgets','runner','weights>weight_charts','window','lab'],
 'attention.scoring': ['attention.'+m for m in 'corpus ladder training scaling sandbox workers validation diversity evaluation'.split()],
 'attention.search': ['attention.'+m for m in 'proposals grammar edits endpoint openevolve discovery>search bridge>openevolve_bridge findings>rescoring standards'.split()],
 'attention.report': ['attention.'+m for m in 'records pictures>charts account>summary_page panel'.split()],
 'experiments': ['benchmarks>speed','training>trainer','baselines','learning','results','acceptance>gate_calibration','audit>merge_audit','twins>merge_ablation','survival>recovery','overhead>lab_overhead','real'],
 'cli': ['doctor','watch','hosts','calibrate','rivals','bench','attention.commands>attention','cli>app'],
}
_special = {'browser':'lab','copies':'lab','kept':'host','attention_poisoning':'attention.scoring','attention_proposers':'attention.search','attention_ray':'attention.scoring'}
TESTS = {}
for _room, _mods in ROOMS.items():
    for _m in _mods: TESTS[_m.partition('>')[0].replace('.', '_')] = _room
_have = 'acceptance analysis asking assimilation attention_account attention_commands attention_corpus attention_discovery attention_diversity attention_edits attention_endpoint attention_evaluation attention_findings attention_grammar attention_hosting attention_ladder attention_mixers attention_openevolve attention_panel attention_pictures attention_poisoning attention_programs attention_proposals attention_proposers attention_ray attention_records attention_sandbox attention_scaling attention_standards attention_training attention_validation audit baselines benchmarks browser calibration charts cli comparison controls copies curriculum dashboard demography diagnosis doctor ecology economy engine evaluation evidence exams export fetch files forms gates gguf host inspection kept lab learning merging organelles overhead parts plasticity profiles real report routing runs sequential sessions survival tasks terminal timeline trials twins uplift variation watch'.split()
TESTS = {**{k: v for k, v in TESTS.items() if k in _have}, **_special}
assert set(TESTS) == set(_have), set(_have) - set(TESTS)
